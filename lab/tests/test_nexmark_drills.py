"""NEXMark's queries as processes: left alone, and with a node with state that is killed."""

from pathlib import Path

import pytest

from rewake.drill.run import run_drill
from rewake.net.kill_points import Fault
from rewake.net.queries.processes import Processes
from rewake_lab.nexmark.drill import NexmarkDrill
from rewake_lab.nexmark.queries import QUERIES

# 20,000 events are 40 s: four tumbling windows.
DRILL = {"events": 20_000, "events_per_second": 500, "cut": 500}
# Of q1 and q2, which keep no state, the node that logs the results.
VICTIMS = {
    "q1": "euros-0",
    "q2": "some-1",
    "q3": "suggested-0",
    "q4": "won-1",
    "q5": "counts-0",
    "q6": "closed",
    "q7": "winners-0",
    "q8": "new-users-1",
    "q12": "counts-1",
}


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES)
def test_a_query_answers_what_duckdb_answers(tmp_path: Path, query: str) -> None:
    """Every result once, in its order."""
    result = run_drill(NexmarkDrill(query, **DRILL), tmp_path, Processes())
    assert result.verdict is not None
    assert result.verdict.expected > 0
    assert result.verdict.right, result.verdict


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES)
def test_a_query_answers_the_same_when_a_node_is_killed(tmp_path: Path, query: str) -> None:
    """It comes back, and nobody who reads the results can tell."""
    fault = Fault(VICTIMS[query], "node.after_work", 15)
    result = run_drill(NexmarkDrill(query, **DRILL), tmp_path, Processes(), faults=[fault])
    assert [blow.node for blow in result.blows] == [VICTIMS[query]]
    assert result.verdict is not None
    assert result.verdict.right, result.verdict

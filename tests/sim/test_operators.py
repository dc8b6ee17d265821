"""Every operator is in the simulator, and one that recovers wrongly is found there."""

from random import Random

import numpy as np
import pytest

from rewake.drill.simulation import simulate
from rewake.operators.join.operator import Join
from rewake.operators.keyed.operator import KeyedProcess
from rewake.operators.resampling.operator import Resample
from rewake.operators.sorting.operator import Sort
from rewake.operators.windows.routing import NO_CLOSINGS
from rewake.operators.windows.session_routing import SessionRouter
from rewake.sim.operator_scenarios import operator_scenario
from rewake.sim.scenarios import random_scenario

# Of each, where the search begins, so that it is short.
PLANTED = {Join: 3, KeyedProcess: 3, Resample: 231, SessionRouter: 3, Sort: 3}
MOST_SEEDS = 600


def test_every_operator_is_in_some_scenario() -> None:
    """Those of the papers, of users and of databases; joins of every kind."""
    kinds, hows = set(), set()
    for seed in range(200):
        for scenario in (operator_scenario(Random(seed)), random_scenario(Random(seed))):
            for node in scenario.plan.nodes:
                program = node.program
                kinds |= {type(step).__name__ for step in program.steps}
                kinds |= {each for each in ("split",) if program.split is not None}
                kinds |= {"union"} if program.stateless and len(node.inputs) > 1 else set()
                if program.stateful is not None:
                    kinds.add(program.stateful.kind)
                    kinds.add(getattr(getattr(program.stateful, "window", None), "kind", "join"))
                    hows.add(getattr(program.stateful, "how", "inner"))
                    kinds.update(_timers(program.stateful))
    assert kinds >= {
        "FilterStep", "MapStep", "LookupStep", "split", "union", "aggregate", "join", "session",
        "sort", "resample", "process", "timers by the clock",
    }  # fmt: skip
    assert hows >= {"inner", "left", "right", "full", "semi", "anti", "linear", "previous"}


def _timers(spec) -> list[str]:
    return ["timers by the clock"] if getattr(spec, "by_machine", False) else []


def _left_out(self, *given):
    """Nothing is replayed; a window says so of each tuple, and that none closed."""
    if not isinstance(self, SessionRouter):
        return 0
    keys, *_ = given
    return np.full(keys.size, -1, np.int32), NO_CLOSINGS


@pytest.mark.parametrize("kind", PLANTED, ids=lambda kind: kind.__name__)
def test_an_operator_that_leaves_out_a_replay_is_found(kind, monkeypatch) -> None:
    """What it should have seen again is missing from its results, sooner or later."""
    monkeypatch.setattr(kind, "replay", _left_out)
    for seed in range(PLANTED[kind], MOST_SEEDS, 4):
        if simulate(seed).failure:
            return
    pytest.fail(f"a {kind.__name__} that leaves out replays passes {MOST_SEEDS // 4} seeds")

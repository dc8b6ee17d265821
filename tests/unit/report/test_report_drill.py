"""The page of a drill, what is kept of it, and that of a benchmark."""

import json
import re
from pathlib import Path

import pytest
from page_references import external_references
from sample_drill import KILLS, sample_drill
from typer.testing import CliRunner

from rewake.cli.app import app
from rewake.drill.node_history import NodeHistory
from rewake.drill.report import write_report
from rewake.model.errors import OperatingFault, UsageError
from rewake.report import Raw, data_folder, facts_now
from rewake_lab.bench.report import write_bench_report
from rewake_lab.bench.rows import Measured, Row, measure


def test_the_page_of_a_drill_shows_all_that_is_known(tmp_path: Path) -> None:
    """Verdict, kills, promises, targets, phases, settings, command; small and self-contained."""
    result = sample_drill(recover_within="500ms")
    text = write_report(result, tmp_path / "report.html", "rewake drill x").read_text()
    assert external_references(text) == []
    assert len(text) < 500_000
    for said in (
        "every result right", "Throughput", "Latency", "kill averages", "Predicted recovery",
        "promised: 500 ms", "q: records to load", "u: tuples to replay", "beyond restart",
        "What each node kept", "cec(recover_within=500ms)", "rewake drill x", "event_tuples",
        "query items: 3 fragments on 3 nodes",
    ):  # fmt: skip
        assert said in text, said


def test_q_and_u_are_shown_against_their_targets(tmp_path: Path) -> None:
    """Targets are levels in the charts."""
    from rewake.recovery.eventual.approach import ContinuousEventual
    from rewake.recovery.policies.targets import Targets

    result = sample_drill(approach=ContinuousEventual(Targets(records=80_000, tuples=400_000)))
    text = write_report(result, tmp_path / "report.html").read_text()
    assert "target Q: 80,000" in text
    assert "target U: 400,000" in text


def test_each_kill_is_beside_the_recovery_that_followed_it() -> None:
    """A node that dies again has other figures each time; one that dies on its way back, once."""
    found = sample_drill().recoveries()
    assert [each.load for each in found] == [10.0, 10.0, 20.0]
    # The second kill came while it recovered from the first.
    assert [round(each.total) for each in found] == [900, 500, 500]


def test_the_history_of_nodes_is_sampled_with_gaps_where_they_are_down() -> None:
    """Not more often than can be seen; nodes without state are left out."""
    table = sample_drill().nodes.table(100.0)
    assert set(table["node"].to_pylist()) == {"averages"}
    assert 100 < table.num_rows < 170
    gaps = table.filter(table["extent_records"].is_null())["seconds"].to_pylist()
    assert gaps
    assert all(any(kill <= at < kill + 0.5 for kill in KILLS) for at in gaps)
    assert NodeHistory().table(0.0).schema == table.schema


def test_what_a_node_last_said_is_known_of_any_moment() -> None:
    """Also of one at which it is down; of a kill point nobody outside knows the moment before."""
    nodes = sample_drill().nodes
    before, down = nodes.said("averages", 101.99), nodes.said("averages", 102.3)
    assert before["target_ms"] == 500.0
    assert before == down
    assert nodes.said("averages", 99.0) == nodes.said("cheap", 103.0) == {}


def test_the_page_is_made_again_from_what_was_kept(tmp_path: Path) -> None:
    """The same page, byte for byte, without running; also from another place."""
    path = write_report(sample_drill(), tmp_path / "report.html", "rewake drill x")
    first = path.read_bytes()
    path.unlink()
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert (done.exit_code, done.stdout.strip()) == (0, str(path))
    assert path.read_bytes() == first
    other = tmp_path / "other.html"
    done = CliRunner().invoke(app, ["report", str(data_folder(path)), "--to", str(other)])
    assert (done.exit_code, other.read_bytes()) == (0, first)


def test_a_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    """And one that holds nothing."""
    Raw("cake", "bake", facts_now()).write(tmp_path / "a")
    for folder, said in (("a", "kind 'cake'"), ("b", "does not hold the data of a run")):
        done = CliRunner().invoke(app, ["report", str(tmp_path / folder)])
        assert isinstance(done.exception, UsageError)
        assert said in str(done.exception)


def test_a_benchmark_writes_a_page_when_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Beside its figures on stdout, which stay as they are for a program."""
    from rewake_lab.bench import core

    measured = Measured([Row("append", 20.0, "x", ">= 15")])
    monkeypatch.setattr(core, "run", lambda *_args, **_more: measured)
    path = tmp_path / "core.html"
    done = CliRunner().invoke(app, ["bench", "core", "--json", "--report", str(path)])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["rows"]) == 1
    assert "1 of 1" in path.read_text()
    assert (tmp_path / "core-data" / "manifest.json").is_file()


def test_an_interrupted_benchmark_shows_what_it_has_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In what a program reads, on the page and in words; and the exit code is that of Ctrl-C."""
    from rewake_lab.bench.operators import measure as operators

    def interrupted(case: operators.Case, *_more: object) -> list[Row]:
        if case.name == "map":
            raise KeyboardInterrupt
        return [Row(case.name, 1.0, "x")]

    monkeypatch.setattr(operators, "measure_case", interrupted)
    path = tmp_path / "operators.html"
    asked = ["--only", "filter", "--only", "map", "--only", "union", "--report", str(path)]
    done = CliRunner().invoke(app, ["bench", "operators", "--json", *asked])
    assert done.exit_code == 130, done.output
    said = json.loads(done.stdout)
    assert [row["name"] for row in said["rows"]] == ["filter"]
    assert said["missing"][0] == "map"
    assert "interrupted; not measured: union" in done.stderr
    assert "Not measured" in path.read_text()


def test_nothing_is_begun_behind_a_part_that_was_interrupted() -> None:
    """Rows from before stay, and all that comes later is missing."""

    def interrupted() -> list[Row]:
        raise KeyboardInterrupt

    begun: list[str] = []
    first, last = Row("a", 1.0, "x"), ("b", lambda: [Row("b", 1.0, "x")])
    found = measure([("a", lambda: [first]), ("stop", interrupted), last], begun.append)
    assert found == Measured([first], ["stop", "b"])
    assert measure([last], begun.append, found) == Measured([first], ["stop", "b", "b"])
    assert begun == ["a", "stop"]


def test_a_part_that_fails_leaves_its_reason_and_the_others_are_measured() -> None:
    """Twenty minutes of figures are not lost to the one that could not be had."""

    def failing() -> list[Row]:
        raise OperatingFault("the other engine is gone")

    row = Row("b", 1.0, "x")
    found = measure([("a", failing), ("b", lambda: [row])], lambda _name: None)
    assert found == Measured([row], [], ["a: the other engine is gone"])


def test_a_benchmark_in_which_a_part_failed_shows_the_rest_and_exits_with_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What failed is said on stderr and in the data."""
    from rewake_lab.bench.operators import measure as operators

    def failing(case: operators.Case, *_more: object) -> list[Row]:
        if case.name == "filter":
            raise OperatingFault("no filter today")
        return [Row(case.name, 1.0, "x")]

    monkeypatch.setattr(operators, "measure_case", failing)
    asked = ["--only", "filter", "--only", "union"]
    done = CliRunner().invoke(app, ["bench", "operators", "--json", *asked])
    assert done.exit_code == 1, done.output
    said = json.loads(done.stdout)
    assert [row["name"] for row in said["rows"]] == ["union"]
    assert said["missing"] == ["filter: no filter today"]
    assert "failed; not measured: filter: no filter today" in done.stderr


@pytest.mark.parametrize("rows", [0, 2])
def test_the_page_of_a_benchmark_says_which_targets_are_met(rows: int, tmp_path: Path) -> None:
    """One page, its data beside it; also of a benchmark that has nothing yet."""
    measured = [Row("append", 20.0, "x", ">= 15"), Row("replay", 9.0, "x", ">= 15", "slow")][:rows]
    path = tmp_path / "core.html"
    write_bench_report(measured, path, "rewake bench core", "rewake bench core", facts_now())
    text = path.read_text()
    assert f"{min(rows, 1)} of {rows}" in text
    assert len(re.findall(r"<td class='(?:good|bad)'>(?:yes|no)", text)) == rows
    done = CliRunner().invoke(app, ["report", str(tmp_path / "core-data")])
    assert (done.exit_code, path.read_text()) == (0, text)

"""What `rewake bench recover-within` counts: streams, the oracle's CHECKs, rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from rewake.drill.kept import Course
from rewake.drill.node_history import NodeHistory
from rewake.model.errors import UsageError
from rewake.net.queries.processes import Processes
from rewake.oracle.verdict import Verdict
from rewake.report import Raw, data_folder, facts_now
from rewake_lab.bench.recover_within import measure as recover_within
from rewake_lab.bench.recover_within.measure import FULL, QUICK, Evidence, Scale, run
from rewake_lab.bench.recover_within.oracle import Lives, fewest_checks, window_lives
from rewake_lab.bench.recover_within.report import keep, promises_page, show, shown_over_time
from rewake_lab.bench.recover_within.runs import (
    NODE,
    Case,
    Drilled,
    Ran,
    WrongResults,
    allowed_stretch,
    checks_left,
    drills_table,
    run_case,
)
from rewake_lab.bench.recover_within.streams import SHAPES, ShapedDrill, ShapedStream

CASE = Case(1.0, "uniform", 1_000, 3)


def drilled(achieved: float, predicted: float = 500.0, *, told: bool = False) -> Drilled:
    numbers = dict.fromkeys(
        ("detect_ms", "restart_ms", "load_ms", "replay_ms", "open_windows", "extent_records",
         "replay_tuples", "fixed_ms", "load_us", "replay_us", "at_worst_ms", "at_s"), 1.0
    )  # fmt: skip
    return Drilled(
        target_s=1.0, keys="uniform", windows=1_000, on="processes", possible=True,
        target_ms=1000.0, predicted_ms=predicted, achieved_ms=achieved, told=told, **numbers,
    )  # fmt: skip


def ran(*drills: Drilled, checks: float = 0.0, fewest: int = 0, case: Case = CASE) -> Ran:
    return Ran(case, list(drills), checks, fewest, 1e6)


# --- streams -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_a_stream_is_the_same_however_it_is_cut(shape: str) -> None:
    """A tuple is a function of seed and position: a source that goes back makes the same."""
    stream = ShapedStream(7, 1_000, shape=shape)
    whole = stream.batch(399_000, 401_000)
    assert whole.slice(900, 500).equals(stream.batch(399_900, 400_400))
    items = whole.column(0).to_numpy()
    assert items.min() >= 0
    assert items.max() < 1_000


def test_zipf_keys_are_skewed() -> None:
    """The first of a thousand items is bought hundreds of times as often as the last ones."""
    items = ShapedStream(1, 1_000, shape="zipf").batch(0, 200_000).column(0).to_numpy()
    counts = np.bincount(items, minlength=1_000)
    assert counts[0] > 0.05 * items.size
    assert counts[0] > 100 * np.median(counts[500:])


def test_bursty_keys_open_many_windows_at_once() -> None:
    """In a burst every tuple is of another item; between bursts few items are bought."""
    stream = ShapedStream(1, 100_000, shape="bursty")
    burst, calm = (stream.batch(start, start + 50_000).column(0) for start in (0, 200_000))
    assert len(burst.unique()) == 50_000
    assert len(calm.unique()) <= 1_000


def test_unknown_keys_are_refused() -> None:
    """With the ones that there are."""
    with pytest.raises(UsageError, match="uniform, zipf, bursty"):
        ShapedStream(1, 10, shape="square")


# --- the oracle --------------------------------------------------------------------------------


def test_windows_live_from_their_first_tuple_to_their_last_or_the_end() -> None:
    """Counted by hand: windows of two tuples."""
    keys, positions = np.array([1, 2, 1, 1, 3, 2]), np.array([0, 1, 2, 5, 6, 8])
    lives = window_lives(keys, positions, 2, 100)
    found = sorted(zip(lives.opened.tolist(), lives.ended.tolist(), strict=True))
    assert found == [(0, 2), (1, 8), (5, 100), (6, 100)]


def test_a_stream_without_tuples_has_no_windows() -> None:
    """And needs no CHECKs."""
    lives = window_lives(np.zeros(0, np.int32), np.zeros(0, np.int64), 10, 100)
    assert fewest_checks(lives, 10.0) == 0


@pytest.mark.parametrize(("life", "needed"), [(0, 0), (10, 0), (11, 1), (20, 1), (21, 2), (100, 9)])
def test_a_window_needs_a_footprint_for_every_stretch(life: int, needed: int) -> None:
    """The first is its OPEN; what closes in time needs none."""
    assert fewest_checks(Lives(np.array([5]), np.array([5 + life])), 10.0) == needed


def test_no_choice_of_checks_does_with_fewer() -> None:
    """Tried out: the greedy oracle against every way to place CHECKs in a short life."""
    for life in range(1, 12):
        for stretch in range(1, 6):
            fewest = next(
                bin(chosen).count("1")
                for chosen in sorted(range(2**life), key=lambda bits: bin(bits).count("1"))
                if _gaps_fit(chosen, life, stretch)
            )
            assert fewest_checks(Lives(np.array([0]), np.array([life])), stretch) == fewest


def _gaps_fit(chosen: int, life: int, stretch: int) -> bool:
    marks = [0, *[at for at in range(1, life) if chosen >> at & 1], life]
    return all(later - sooner <= stretch for sooner, later in pairwise(marks))


def test_the_oracle_sees_what_passes_the_filter() -> None:
    """Its windows are those of the query's results: as many whole ones as are expected."""
    drill = ShapedDrill(tuples=50_000, items=300, shape="zipf")
    keys, positions = drill.kept()
    lives = window_lives(keys, positions, drill.window, drill.tuples)
    whole = np.count_nonzero(lives.ended < drill.tuples)
    assert np.bincount(keys).sum() == positions.size
    assert whole == (np.bincount(keys) // drill.window).sum()


# --- what nodes said ---------------------------------------------------------------------------


def history(rows: list[tuple[float, float | None]]) -> NodeHistory:
    found = NodeHistory()
    for at, checks in rows:
        found.note(at, {"averages": {
            "extent_records": 200.0, "replay_tuples": 1000.0, "checks": checks, "open_windows": 9,
            "worst_fixed_ms": 100.0, "worst_load_us": 0.5, "worst_replay_us": 0.9,
            "running": checks is not None,
        }})  # fmt: skip
    return found


def test_checks_of_all_lives_are_counted() -> None:
    """A node counts from its start; what it did not live to tell is taken to be as before."""
    seen = history([(0, 0), (1, 50), (2, 100), (3, 100), (4, None), (5, 10), (6, 40), (7, None)])
    # The first life told of 100 by second 2 and lived until 3: 150.
    assert checks_left(seen) == pytest.approx(100 * 3 / 2 + 40)


def test_the_stretch_is_what_the_controllers_rates_allow() -> None:
    """900 ms are left; a position costs 0.9 us, and a fifth of a record at 0.5 us."""
    assert allowed_stretch(history([(0, 0), (1, 5)]), 1000.0) == pytest.approx(900_000)


def test_without_anything_to_replay_nothing_is_limited() -> None:
    """No footprint gets old."""
    assert allowed_stretch(NodeHistory(), 1000.0) == float("inf")


# --- rows --------------------------------------------------------------------------------------


def test_rows_say_what_was_within_and_what_was_not() -> None:
    """Shares over all drills, CHECKs over all runs, throughput by the median of rounds."""
    impossible = ran(drilled(3000, told=True), case=replace(CASE, possible=False))
    evidence = Evidence(
        [ran(drilled(400), drilled(1200), checks=30, fewest=20), impossible],
        [(9.0, 10.0), (10.0, 10.0), (9.8, 10.0)],
    )
    rows = {row.name: row for row in evidence.rows()}
    assert rows["recoveries within their target"].value == 0.5
    assert rows["recoveries within their target"].met is False
    assert rows["CHECKs / fewest possible"].value == 1.5
    assert rows["CHECKs / fewest possible"].met
    assert rows["told beforehand that it cannot be met"].value == 1.0
    assert rows["throughput, 1 s promised / without CHECKs"].value == pytest.approx(0.98)


def test_runs_that_did_not_keep_the_limit_are_no_merit() -> None:
    """Told that it cannot be met, or fewer CHECKs than the fewest possible: not compared."""
    told = ran(drilled(900, told=True), checks=10, fewest=1000)
    short = ran(drilled(900), checks=10, fewest=1000)
    fair = ran(drilled(900), checks=26, fewest=20)
    (row,) = [row for row in Evidence([told, short, fair]).rows() if "CHECKs" in row.name]
    assert row.value == pytest.approx(1.3)
    assert "1 of 3 runs" in row.note


def test_nothing_measured_is_no_row() -> None:
    """Rather than a figure that nobody measured."""
    assert Evidence().rows() == []


def test_the_benchmark_has_over_200_drills() -> None:
    """Every shape of keys, every target, every number of windows, and Spark."""
    counted = [case for case in FULL.cases if case.possible]
    assert sum(case.kills for case in counted) >= 200
    assert {case.keys for case in counted} == set(SHAPES)
    assert {case.target_s for case in counted} == {0.2, 1.0, 5.0}
    assert {case.windows for case in counted} == {1_000, 30_000, 1_000_000}
    assert {case.on for case in counted} == {"processes", "Spark"}
    assert sum(case.kills for case in QUICK.cases) < 30


def test_an_interrupted_benchmark_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says which configurations are missing, and that throughput is."""
    second = replace(CASE, keys="zipf")

    def fake(case: Case, folder: Path, launcher: object) -> Ran:
        if case is second:
            raise KeyboardInterrupt
        return ran(drilled(400))

    monkeypatch.setattr(recover_within, "run_case", fake)
    told: list[int] = []
    evidence = run(
        tmp_path,
        lambda _name: None,
        scale=Scale((CASE, second), 1.0, 1),
        on_run=lambda so_far: told.append(len(so_far.runs)),
    )
    assert len(evidence.drills) == 1
    assert told == [1]
    assert evidence.missing == [f"drills: {second.name}", "throughput"]
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_result_is_an_error_and_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No figure counts when the engine is wrong."""

    class Result:
        verdict = Verdict(100, 1, 2, 3, 4)

    monkeypatch.setattr(
        "rewake_lab.bench.recover_within.runs.run_drill", lambda *_args, **_options: Result()
    )
    with pytest.raises(WrongResults, match="1 are lost, 2 duplicated, 3 reordered, 4 wrong"):
        run_case(CASE, tmp_path, Processes())


def test_every_drill_is_kept_beside_the_page(tmp_path: Path) -> None:
    """Prediction beside achievement, and the page can be made again from it."""
    evidence = Evidence([ran(drilled(400), drilled(1200))], missing=["throughput"])
    path = tmp_path / "promises.html"
    keep(evidence, path, "rewake bench recover-within", facts_now())
    kept = Raw.read(data_folder(path))
    assert kept.tables["drills"].select(["predicted_ms", "achieved_ms", "within"]).to_pylist() == [
        {"predicted_ms": 500.0, "achieved_ms": 400.0, "within": True},
        {"predicted_ms": 500.0, "achieved_ms": 1200.0, "within": False},
    ]
    written = show(evidence, path, "rewake bench recover-within", facts_now()).read_text()
    assert "Not measured" in written
    for part in ("q and u when the node was killed", "Recoveries, medians", "The query",
                 "killed", "checkpoint_budget"):  # fmt: skip
        assert part in written
    assert "every drill" in promises_page(kept).html().lower()


def test_the_run_that_is_shown_over_time_is_the_hardest() -> None:
    """Where a promise was nearly broken, or was, is what people want to look at."""
    impossible = replace(CASE, possible=False)
    slow = ran(drilled(400), drilled(900))
    assert slow.closest == 0.9
    assert ran().closest == 0.0
    course = Course({"marks": []}, {})
    runs = [
        replace(each, course=course)
        for each in (ran(drilled(500)), slow, ran(drilled(5000), case=impossible))
    ]
    runs[1] = replace(runs[1], case=replace(CASE, seed=99), course=Course({"marks": [1]}, {}))
    shown = shown_over_time(runs)
    assert shown is not None
    assert runs[1].case.name in shown.words
    assert shown.course is runs[1].course
    assert shown_over_time([ran(drilled(1))]) is None, "nothing was kept of it"


def test_no_drills_make_a_table_with_all_columns() -> None:
    """An interrupted benchmark may have none."""
    table = drills_table([])
    assert table.num_rows == 0
    assert {"predicted_ms", "achieved_ms", "within"} <= set(table.column_names)


@pytest.mark.slow
def test_a_configuration_is_killed_and_comes_back(tmp_path: Path) -> None:
    """Real processes, real logs, a real SIGKILL; the results are right."""
    found = run_case(Case(5.0, "bursty", 1_000, 1), tmp_path, Processes())
    (drill,) = found.drills
    assert drill.predicted_ms > 0
    assert drill.achieved_ms > 0
    assert (drill.extent_records or 0) >= (drill.open_windows or 0) > 0
    path = tmp_path / "promises.html"
    show(Evidence([ran(drilled(1)), found]), path, "rewake bench recover-within", facts_now())
    written = promises_page(Raw.read(data_folder(path))).html()
    for part in ("Throughput", "Latency", "Predicted recovery", f"kill {NODE}", found.case.name):
        assert part in written

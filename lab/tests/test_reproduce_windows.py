"""Policies, time windows and sliding windows: what the papers only discuss."""

from pathlib import Path

import pyarrow as pa
import pytest

from rewake.operators.windows.specs import CountWindow, TimeWindow
from rewake_lab.reproduce.cec import policies as cec_policies
from rewake_lab.reproduce.cec import sliding_windows as cec_sliding_windows
from rewake_lab.reproduce.cec import time_windows as cec_time_windows
from rewake_lab.reproduce.cec import window_kinds
from rewake_lab.reproduce.cec.policies import ALIKE, BENEFIT, EXTENT, NONE, RARE, REPLAY
from rewake_lab.reproduce.cec.target_runs import Sizes
from rewake_lab.reproduce.cec.window_kinds import COUNT, KEPT, TIME, Kind
from rewake_lab.reproduce.experiment import Row, Setting, where


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Setting:
    """100 items."""
    monkeypatch.setattr(window_kinds, "kind_sizes", lambda _setting: Sizes(100, 10, 29.5))
    monkeypatch.setattr(cec_policies, "sizes_of", lambda _setting: Sizes(100, 10))
    return Setting(tmp_path)


def test_kinds_of_windows_hold_as_many_tuples() -> None:
    """A time window is as long as ten tuples of an item take on average."""
    assert Kind(COUNT, 5).window(200) == CountWindow(10, 5)
    window = Kind(TIME, 5).window(200)
    assert isinstance(window, TimeWindow)
    assert window.in_unit(1000) == (20_000, 10_000)


def test_time_windows_are_never_older_than_they_are_long(tiny: Setting) -> None:
    """Count windows are: chance decides (Thesis 4.3)."""
    table = pa.Table.from_pylist(list(cec_time_windows.rows(tiny)))
    time, count = (
        cec_time_windows.replay_of(table, of, window_kinds.NONE)[1] for of in (TIME, COUNT)
    )
    assert time <= 10.1
    assert count > 12
    for of in (COUNT, TIME):
        assert cec_time_windows.replay_of(table, of, KEPT)[1] <= 2.7
    assert "is kept at all times" in cec_time_windows.verdict(table)
    assert len(cec_time_windows.findings(table)) == 20
    assert len(cec_time_windows.plots(table)) == 2


def test_more_overlap_means_more_panes_and_more_checks(tiny: Setting) -> None:
    """Each run found its panes again, or there would be no row."""
    table = pa.Table.from_pylist(list(cec_sliding_windows.rows(tiny)))
    assert table.num_rows == 16
    for of in (COUNT, TIME):
        runs = [cec_sliding_windows.known_of(table, of, every, KEPT) for every in (10, 5, 2, 1)]
        assert [run["panes"] for run in runs] == sorted(run["panes"] for run in runs)
        assert runs[-1]["checks"] > runs[0]["checks"] > 0
        assert cec_sliding_windows.known_of(table, of, 1, window_kinds.NONE)["checks"] == 0
    assert "The target is kept at the crash in 8 of 8 runs" in cec_sliding_windows.verdict(table)
    assert len(cec_sliding_windows.findings(table)) == 20
    assert len(cec_sliding_windows.plots(table)) == 4


def test_all_policies_meet_the_same_crash(tiny: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """More patience, more CHECKs, and less to recover."""
    for name, told in (("EXTENTS", (1, 8)), ("REPLAYS", (1.25, 10)), ("PATIENCES", (0.25, 4))):
        monkeypatch.setattr(cec_policies, name, told)
    table = pa.Table.from_pylist(list(cec_policies.rows(tiny)))
    for stream in (ALIKE, RARE):
        chosen = where(table, stream=stream)
        assert len({row["results"] for row in chosen.to_pylist()}) == 1
        patient = where(chosen, policy=BENEFIT).sort_by("told").to_pylist()
        assert patient[0]["checks"] < patient[-1]["checks"]
        assert patient[0]["replay_tuples"] > patient[-1]["replay_tuples"]
    assert "comparisons" in cec_policies.verdict(table)
    assert len(cec_policies.plots(table)) == 2
    assert cec_policies.findings(table)


def policy_row(policy: str, checks: int, records: int) -> Row:
    """A run whose recovery costs a second per record."""
    return {"stream": ALIKE, "policy": policy, "told": 1.0, "checks": checks, "results": 10,
            "extent_records": records, "replay_tuples": 0, "load_us": 1e6, "replay_us": 1.0,
            "load_s": 1.0, "replay_s": 1.0}  # fmt: skip


def test_policies_are_compared_at_the_same_number_of_checks() -> None:
    """Between two targets on the curve, not on a chord; beyond them not at all."""
    rows = [
        policy_row(NONE, 0, 5000),
        policy_row(EXTENT, 10, 1000),
        policy_row(EXTENT, 1000, 10),
        policy_row(REPLAY, 0, 4000),
        policy_row(BENEFIT, 100, 100),
        policy_row(BENEFIT, 5000, 1),
    ]
    table = pa.Table.from_pylist(rows)
    assert cec_policies.against(table, ALIKE, EXTENT) == [pytest.approx(1.0)]
    assert cec_policies.against(table, ALIKE, REPLAY) == []

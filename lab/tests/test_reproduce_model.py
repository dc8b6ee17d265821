"""The analytical model: what it is fitted to, what it predicts, what is measured beside it."""

from pathlib import Path

import pyarrow as pa
import pytest

from rewake_lab.reproduce.driving import PAPER_EVENT
from rewake_lab.reproduce.experiment import Row, Setting
from rewake_lab.reproduce.thesis import model as thesis_model
from rewake_lab.reproduce.thesis.paced import stay
from rewake_lab.reproduce.thesis.persistence import tuples_of

SIZES = (64, 256, 1024, 4096, 16384)


def measured(*, shared: bool) -> pa.Table:
    """Rows of a machine that is exactly as the model has it."""
    rows: list[Row] = []
    for size in SIZES:
        event_bytes = size * PAPER_EVENT
        z, y = 1e-4 + 1e-9 * event_bytes, 2e-4 + 3e-9 * event_bytes
        rates = {
            name: event_bytes / 1e6 / seconds
            for name, seconds in {"z": z, "y": y, "x": y + z if shared else max(y, z)}.items()
        }
        process_s, store_s = 1e-4 + 1e-9 * event_bytes, 5e-3 + 2e-9 * event_bytes
        memory = 100.0 * event_bytes * (process_s + store_s)
        rows.append(
            {"tuple_bytes": size, "event_bytes": event_bytes, **rates, "events_per_s": 100.0,
             "process_s": process_s, "store_s": store_s, "memory_bytes": memory}
        )  # fmt: skip
    return pa.Table.from_pylist(rows)


@pytest.mark.parametrize("shared", [True, False])
def test_the_model_predicts_sizes_that_it_was_not_fitted_to(shared: bool) -> None:
    """Exactly, for a machine that is as the model says; and it tells which reading is right."""
    table = measured(shared=shared)
    right = thesis_model.SHARED if shared else thesis_model.SEPARATE
    for size in (256, 4096):
        errors = thesis_model.errors_of(table, size)
        assert errors[right] == pytest.approx(0, abs=0.01)
        assert errors["memory"] == pytest.approx(0, abs=0.01)
    assert f"The reading {right} is nearer" in thesis_model.verdict(table)
    assert len(thesis_model.findings(table)) == 12
    assert [plot.y_scale for plot in thesis_model.plots(table)] == ["log", "log"]


def test_times_that_fall_with_the_size_are_not_believed() -> None:
    """Neither a start nor a byte takes less than no time."""
    fixed, per_byte = thesis_model.fit_line([(64, 3e-3), (1024, 2e-3), (16384, 1e-3)])
    assert fixed > 0
    assert per_byte == 0
    fixed, per_byte = thesis_model.fit_line([(64, 1e-6), (1024, 1e-3), (16384, 1.0)])
    assert fixed == 0
    assert per_byte > 0


def test_memory_is_what_is_seen_in_the_node(tmp_path: Path) -> None:
    """No more than all of it, and it comes at the pace that was asked for, or slower."""
    stayed = stay(tuples_of(64, 8, 1), 200.0, 20, tmp_path / "log")
    assert 0 < stayed.events_inside <= 20
    assert stayed.events_per_s <= 220
    assert stayed.process_s > 0
    assert stayed.store_s > 0
    assert list(tmp_path.iterdir()) == []


def test_all_parts_of_the_model_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each size in each round."""
    monkeypatch.setattr(thesis_model, "megabytes_of", lambda _setting, _size: 0.2)
    monkeypatch.setattr(thesis_model, "seconds_paced", lambda _setting: 0.02)
    monkeypatch.setattr(thesis_model, "rounds_of", lambda _setting: 1)
    table = pa.Table.from_pylist(list(thesis_model.rows(Setting(tmp_path))))
    assert sorted(table["tuple_bytes"].to_pylist()) == list(SIZES)
    assert "nearer" in thesis_model.verdict(table)

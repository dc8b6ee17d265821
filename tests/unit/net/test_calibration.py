"""What recovery costs on this machine: measured once, kept, and measured again when damaged."""

import itertools
from pathlib import Path

import pytest

from rewake.drill.queries import ItemDrill
from rewake.model.errors import OperatingFault
from rewake.net.nodes.calibration import (
    HOPS_MS,
    calibrate,
    calibration,
    go_on_with_rates,
    keep_rates,
    kept_rates,
)
from rewake.net.queries.running import start_processes
from rewake.recovery.promises.rates import Costs, RecoveryRates

FIGURES = {"extent_records": 7.0, "predicted_ms": 80.0}


def test_costs_are_positive_and_of_this_world():
    """No part of a recovery is free, and none takes a millisecond per tuple."""
    costs = calibrate().to_json()
    assert all(value > 0 for value in costs.values())
    assert all(costs[name] < 1000 for name in ("load_us", "replay_us", "work_us", "check_us"))


def test_the_fixed_part_is_measured_by_doing_it_once(tmp_path: Path):
    """A log is opened again by a successor; nothing of it is left behind."""
    assert calibrate(tmp_path).fixed_ms > HOPS_MS
    assert list(tmp_path.iterdir()) == []


def test_a_calibration_is_kept_beside_the_state(tmp_path: Path):
    """The second time nothing is measured: the figures are the same to the last digit."""
    first = calibration(tmp_path)
    assert calibration(tmp_path) == first


def test_a_damaged_calibration_is_measured_again(tmp_path: Path):
    """It is only a measurement: nothing is lost with it."""
    calibration(tmp_path)
    (tmp_path / "calibration.json").write_text('{"load_us": 0}')
    assert calibration(tmp_path).load_us > 0


def test_a_machine_that_is_too_slow_to_calibrate_is_told(tmp_path: Path):
    """What took how long, and three ways out; no promise is made on such figures."""
    ticks = itertools.count(0.0, 60.0)
    with pytest.raises(OperatingFault, match=r"too slow to calibrate.*leave recover_within out"):
        calibrate(tmp_path, work_clock=lambda: next(ticks))


def test_a_query_that_cannot_be_calibrated_gives_its_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nothing runs, nothing is locked: it can be started again when the machine is less busy."""

    def too_slow(_folder: Path) -> Costs:
        raise OperatingFault("this machine is too slow to calibrate")

    query = ItemDrill(tuples=1000, items=10, recover_within="1s").build()
    with monkeypatch.context() as busy:
        busy.setattr("rewake.net.queries.running.calibration", too_slow)
        with pytest.raises(OperatingFault, match="too slow"):
            start_processes(query, tmp_path)
    with start_processes(query, tmp_path) as running:
        assert running.await_end(60)


def test_what_a_node_has_seen_is_there_in_its_next_life(tmp_path: Path):
    """Means, deviations and how much was seen: the next prediction is that of the last life."""
    rates = RecoveryRates(Costs(fixed_ms=500))
    for _ in range(5):
        rates.recovered(
            records=100_000, load_us=90_000, tuples=100_000, replay_us=30_000, fixed_ms=40
        )
    keep_rates(tmp_path, "averages", rates, FIGURES)
    again = RecoveryRates()
    go_on_with_rates(tmp_path, "averages", again)
    assert again.kept() == rates.kept()
    assert again.at_worst_ms(1e5, 1e5) == rates.at_worst_ms(1e5, 1e5)
    kept = kept_rates(tmp_path, "averages")
    assert kept is not None
    assert kept.figures == FIGURES


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"at": 1, "rates": {}, "figures": {}}',
             '{"at": 1, "rates": {"load_us": [0, 1, 1]}, "figures": {}}']
)  # fmt: skip
def test_rates_that_cannot_be_read_are_not_taken_up(tmp_path: Path, text: str):
    """The node begins with what was calibrated, as if it had never recovered."""
    (tmp_path / "rates").mkdir()
    (tmp_path / "rates" / "averages.json").write_text(text)
    rates = RecoveryRates(Costs(fixed_ms=42))
    go_on_with_rates(tmp_path, "averages", rates)
    assert rates.costs.fixed_ms == 42


def test_a_node_goes_on_when_its_rates_cannot_be_kept(tmp_path: Path):
    """A measurement is not worth failing for."""
    (tmp_path / "rates").write_text("a file where the folder should be")
    keep_rates(tmp_path, "averages", RecoveryRates(), FIGURES)
    assert kept_rates(tmp_path, "averages") is None

"""What recovery costs on this machine: measured once, kept, and measured again when damaged."""

from pathlib import Path

from rewake.net.calibration import calibrate, calibration


def test_costs_are_positive_and_of_this_world():
    """No part of a recovery is free, and none takes a millisecond per tuple."""
    costs = calibrate().to_json()
    assert all(value > 0 for value in costs.values())
    assert all(costs[name] < 1000 for name in ("load_us", "replay_us", "work_us", "check_us"))


def test_a_calibration_is_kept_beside_the_state(tmp_path: Path):
    """The second time nothing is measured: the figures are the same to the last digit."""
    first = calibration(tmp_path)
    assert calibration(tmp_path) == first


def test_a_damaged_calibration_is_measured_again(tmp_path: Path):
    """It is only a measurement: nothing is lost with it."""
    calibration(tmp_path)
    (tmp_path / "calibration.json").write_text('{"load_us": 0}')
    assert calibration(tmp_path).load_us > 0

"""A promised recovery time in words, for `rewake explain` and the progress of a drill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rewake.cli.app import app
from rewake.drill import promise
from rewake.drill.promise import explained, in_short, standing
from rewake.drill.queries import ItemDrill
from rewake.net.nodes.calibration import keep_rates
from rewake.recovery.promises.rates import Costs, RecoveryRates

SAID: dict[str, Any] = {
    "extent_records": 10_000.0, "replay_tuples": 2_000_000.0, "replay_from": 5_000_001.0,
    "predicted_ms": 255.0, "target_ms": 1000.0, "margin_ms": 745.0,
    "fixed_ms": 50.0, "load_us": 0.5, "replay_us": 0.1,
}  # fmt: skip
COSTS = Costs(load_us=0.4, replay_us=0.1, work_us=0.1, check_us=0.2, fixed_ms=40)


def rewake(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture
def calibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine is one that costs are known of."""
    monkeypatch.setattr(promise, "calibrate", lambda: COSTS)


def test_how_a_promise_stands_is_told_in_full() -> None:
    """q, u, T, the rates, the prediction and the margin; the prediction follows from the rest."""
    assert standing(SAID) == [
        "q 10,000 records, u 2,000,000 tuples, T 5,000,000",
        "rates: 50 ms + 0.500 us for a record + 0.100 us for a tuple",
        "a crash now: 255 ms predicted, 1,000 ms promised, margin 745 ms",
    ]


def test_a_line_that_changes_has_the_same_in_short() -> None:
    """Beside a progress bar."""
    assert in_short(SAID) == (
        "q 10.0k u 2.0M T 5.0M; 0.50 us/record 0.10 us/tuple; 255 of 1,000 ms, margin 745"
    )


def test_advice_is_told_with_it() -> None:
    """What to do when it cannot be."""
    assert standing(SAID | {"advice": "use more shards"})[-1] == "use more shards"


def test_where_nothing_was_promised_nothing_is_said() -> None:
    """Figures of other nodes have no target."""
    assert standing({"extent_records": 5.0}) == []
    assert in_short(SAID | {"target_ms": None}) == ""
    assert explained(ItemDrill().build().plan(), None) == []


@pytest.mark.usefixtures("calibrated")
def test_explain_tells_what_a_promise_allows_before_the_query_has_run() -> None:
    """By the rates of this machine: 920 ms are left, at 0.6 us for a record at worst."""
    said = rewake("explain", "items", "--recover-within", "1s").stdout
    assert "averages: back within 1,000 ms of a restart, at most 5% of the time" in said
    assert "40 ms + 0.400 us for a record + 0.100 us for a tuple" in said
    assert "enough to load 1.5M records" in said


@pytest.mark.usefixtures("calibrated")
def test_explain_says_that_a_target_is_below_the_possible() -> None:
    """Before anything runs."""
    said = rewake("explain", "items", "--recover-within", "45ms").stdout
    assert "45 ms cannot be met here: the fixed part alone may take 80 ms" in said


def test_explain_tells_how_a_promise_stands_in_a_folder(tmp_path: Path) -> None:
    """As the node last kept it: while it runs, and after."""
    keep_rates(tmp_path, "averages", RecoveryRates(), SAID)
    said = rewake("explain", "items", "--recover-within", "1s", "--folder", tmp_path).stdout
    assert "as it was 0 s ago:" in said
    assert all(line in said for line in standing(SAID))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--recover-within", "0s"], "longer than nothing"),
        (["--recover-within", "fast"], "not a duration"),
        (["--recover-within", "5 parsecs"], "not a duration"),
        (["--folder", "nowhere-at-all"], "there is no folder nowhere-at-all"),
    ],
)
def test_nonsense_is_refused_in_words(arguments: list[str], words: str) -> None:
    """A caller's mistake, not a traceback."""
    assert words in str(rewake("explain", "items", *arguments).exception)


def test_a_budget_of_nothing_and_a_promise_under_amnesia_are_refused() -> None:
    """Each with the way out."""
    with pytest.raises(Exception, match="leave recover_within out instead"):
        ItemDrill(recover_within="1s", checkpoint_budget="0%").build()
    with pytest.raises(Exception, match="cannot be promised under approach 'amnesia'"):
        ItemDrill(recover_within="1s", approach="amnesia").build()

"""CEC II: overlapping windows "do not present additional challenges": sliding ones under CEC.

In Borealis two windows that overlap are two windows, and each takes every tuple.  Here a tuple goes
into one pane, a stretch between two borders of windows, and a pane leaves OPENs and CHECKs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from rewake_lab.reproduce.cec.window_kinds import (
    COUNT,
    KEPT,
    NONE,
    REPLAY_TUPLES,
    TIME,
    WINDOW,
    Kind,
    kinds_scaling,
    run_kinds,
)
from rewake_lab.reproduce.experiment import Experiment, Finding, Plot, Row, Setting, where

scaling = kinds_scaling
_EVERY = (10, 5, 2, 1)
_METRICS = (
    ("panes", "Open panes of an item", "panes"),
    ("extent_records", "Extent at the crash", "records"),
    ("checks", "CHECKs", "CHECKs"),
    ("recovery_s", "Load and replay after the crash", "seconds"),
)


def rows(setting: Setting) -> Iterator[Row]:
    """Ever more overlap, for both kinds under both policies; the last look at each run."""
    looked = run_kinds(setting, [Kind(of, every) for of in (COUNT, TIME) for every in _EVERY])
    last: Row = {}
    for row in looked:
        if last and (row["of"], row["every"], row["policy"]) != (
            last["of"],
            last["every"],
            last["policy"],
        ):
            yield last
        last = row
    yield last


def known_of(table: pa.Table, of: str, every: int, policy: str) -> dict[str, float]:
    """What was measured of one policy with windows that begin so often."""
    row = where(table, of=of, every=every, policy=policy).to_pylist()[0]
    known: dict[str, float] = row
    known["panes"] = known["open_windows"] / known["items"]
    known["recovery_s"] = known["load_s"] + known["replay_s"]
    return known


def _growth(table: pa.Table, of: str, column: str, policy: str) -> float:
    """How many times as much as tumbling windows the most overlapping ones have."""
    tumbling, sliding = (known_of(table, of, every, policy)[column] for every in (WINDOW, 1))
    return sliding / max(tumbling, 1e-9)


def findings(table: pa.Table) -> list[Finding]:
    """Tumbling windows and those that overlap most."""
    found = []
    for of in (COUNT, TIME):
        for every in (WINDOW, 1):
            known = known_of(table, of, every, KEPT)
            name = f"{of} windows of {WINDOW}, one every {every}"
            for column, title, unit in _METRICS:
                found.append(Finding(f"{name}: {title}, {KEPT}", known[column], unit))
            slower = known["processor_s"] / known["native_s"]
            found.append(Finding(f"{name}: processor time against native, {KEPT}", slower, "ratio"))
    return found


def plots(table: pa.Table) -> list[Plot]:
    """Each metric against the overlap."""
    shown = pa.Table.from_pylist(
        [
            {
                "every": f"{every}",
                "run": f"{of}, {policy}",
                **{column: known_of(table, of, every, policy)[column] for column, _, _ in _METRICS},
            }
            for of in (COUNT, TIME)
            for policy in (NONE, KEPT)
            for every in _EVERY
        ]
    )
    x_title = f"a window of {WINDOW} starts every"
    return [
        Plot(title, shown, x="every", y=column, x_title=x_title, y_title=unit, kind="bar",
             series="run")
        for column, title, unit in _METRICS
    ]  # fmt: skip


def _words(table: pa.Table, of: str) -> str:
    grown = {column: _growth(table, of, column, KEPT) for column, _, _ in _METRICS}
    sliding, tumbling = (known_of(table, of, every, KEPT) for every in (1, WINDOW))
    per_result = sliding["checks"] / sliding["results"]
    before = tumbling["checks"] / tumbling["results"]
    return (
        f"{of} windows have {grown['panes']:.1f} times the open panes, {grown['checks']:.1f} times "
        f"the CHECKs ({per_result:.2f} instead of {before:.2f} per result), "
        f"{grown['extent_records']:.1f} times the extent and {grown['recovery_s']:.1f} times the "
        "time to load and replay"
    )


def _kept(table: pa.Table) -> str:
    """In how many runs the target for the replay was kept at the crash, within 5%."""
    runs = where(table, policy=KEPT).to_pylist()
    kept = [run for run in runs if run["replay_tuples"] <= 1.05 * REPLAY_TUPLES * run["items"]]
    return f"{len(kept)} of {len(runs)} runs"


def verdict(table: pa.Table) -> str:
    """What agrees and what differs."""
    most = max(_growth(table, of, "checks", KEPT) for of in (COUNT, TIME))
    word = "no more" if most <= WINDOW else "more"
    return (
        "The paper says that windows which overlap are separate windows and bring no additional "
        "challenge; it has no figures. Ten windows of an item open at a time instead of one, for "
        f"the same target: {_words(table, COUNT)}; {_words(table, TIME)}. CHECKs grow {word} than "
        f"the {WINDOW} times that separate windows would need. The target is kept at the crash in "
        f"{_kept(table)}. Recovery found as many open panes as there were before each crash, or "
        "the run would have failed."
    )


EXPERIMENT = Experiment(rows, scaling, findings, plots, verdict)

"""CEC Fig. 8 and 9: response time and extent against the checkpoint period CP (CEC IV.C).

The response time of a window is from its opening to its closure.  Everything is in real time: the
source is as fast as the operator, so what CHECKs take shows as windows that stay open for longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

import numpy as np
import pyarrow as pa

from rewake.connectors.item_stream import ItemStream
from rewake.log.frame import SectionKind, TurnRecord
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.operator import Aggregate
from rewake.operators.columns.arrays import Int64s
from rewake.operators.stateful import Outcome
from rewake.recovery.eventual.reading import unpack_parts
from rewake.recovery.policies.policy import CheckpointPolicy, OpenOnly
from rewake.recovery.policies.targets import TargetsPolicy
from rewake_lab.reproduce.driving import PAPER_EVENT, Clock, Logged, averages, made_batches
from rewake_lab.reproduce.experiment import Experiment, Finding, Plot, Row, Setting, mean, where

_ITEMS = 100_000
_OPEN_WINDOWS = 90_000
_INTERVAL_MS = 10
_PERIODS = (250, 100, 50, 25)
_SLICE_S = 0.25
_WITHOUT = "no CEC"
# Not in the paper: it tells what CHECKs cost from what a stable log with OPENs costs.
_OPENS = "no CHECKs"
_CHECK_US = 0.5
# Windows of all ages are open after two lives.
_WARM_TUPLES = 20 * _ITEMS
_PAPER_RESPONSE = {
    _WITHOUT: "16.5",
    _OPENS: "",
    "250 ms": "as without",
    "100 ms": "18.5",
    "50 ms": "21.5",
    "25 ms": "32.5",
}


class _Responses:
    """Averages, slice by slice, of how long the windows that closed had been open."""

    def __init__(self, turns: int) -> None:
        self._began = np.zeros(turns)
        self._sum = self._count = 0.0

    def note(self, turn: int, now: float, ended_ids: Int64s) -> None:
        """A turn at `now` ended windows that were opened by the tuples at these positions."""
        if turn >= self._began.size:
            self._began = np.pad(self._began, (0, self._began.size))
        self._began[turn] = now
        self._sum += float((now - self._began[ended_ids // PAPER_EVENT]).sum())
        self._count += ended_ids.size

    def take(self) -> float:
        """The average since the last time it was asked for."""
        average = self._sum / max(1.0, self._count)
        self._sum = self._count = 0.0
        return average


class _Native:
    """The operator alone."""

    def __init__(self, operator: Aggregate) -> None:
        self._operator = operator
        self.checks = self.extent = 0

    def turn(self, event: StreamEvent, _now_ms: float) -> Int64s:
        outcome: Outcome = self._operator.process(event)
        if outcome.results is not None:
            outcome.results.serialize()
        return outcome.ended_ids


class _Checkpointed:
    """Under CEC with a stable log and Q = the open windows."""

    def __init__(self, logged: Logged) -> None:
        self._logged = logged

    @property
    def checks(self) -> int:
        return self._logged.checks

    @property
    def extent(self) -> int:
        return self._logged.cec.extent().records

    def turn(self, event: StreamEvent, now_ms: float) -> Int64s:
        record = self._logged.turn(event, now_ms)
        return _ended(record)


def _ended(record: TurnRecord | None) -> Int64s:
    if record is not None:
        for section in record.sections:
            if section.kind == SectionKind.CLOSED:
                return unpack_parts(memoryview(section.payload), record.t_end)[0]
    return np.zeros(0, np.int64)


def _slices(
    contender: _Native | _Checkpointed, name: str, batches: list[pa.RecordBatch], seconds: float
) -> Iterator[Row]:
    """Run for so long after the warm-up; a row for each slice of its own time."""
    warm = _WARM_TUPLES // PAPER_EVENT
    responses = _Responses(4 * warm)
    clock, turn, begun, sliced, before, paused = Clock(), 0, 0.0, 0.0, (0, 0), 0.0
    while turn < warm or sliced - begun < seconds:
        event = StreamEvent(turn * PAPER_EVENT, batches[turn % len(batches)])
        ended = contender.turn(event, (clock.seconds - paused) * 1e3)
        now = clock.seconds - paused
        responses.note(turn, now, ended)
        turn += 1
        if turn == warm:
            begun = sliced = now
            before = (turn, contender.checks)
            responses.take()
        elif turn > warm and now - sliced >= _SLICE_S:
            row: Row = {
                "configuration": name,
                "at_s": now - begun,
                "response_s": responses.take(),
                "extent_records": contender.extent,
                "checks_per_s": (contender.checks - before[1]) / (now - sliced),
                "input_per_s": (turn - before[0]) * PAPER_EVENT / (now - sliced),
            }
            sliced, before = now, (turn, contender.checks)
            yield row
            paused = clock.seconds - now  # the others' turns are no time of this one


def _seconds(setting: Setting) -> float:
    return 15.0 if setting.full else 3.0


def rows(setting: Setting) -> Iterator[Row]:
    """Without CEC, without CHECKs, and with ever shorter periods, all taking turns."""
    batches = made_batches(ItemStream(setting.seed, _ITEMS), PAPER_EVENT, 10 * _ITEMS)
    policies: dict[str, CheckpointPolicy] = {_OPENS: OpenOnly()}
    policies |= {f"{period} ms": _policy(period) for period in _PERIODS}
    seconds = _seconds(setting)
    runs = [_slices(_Native(averages()), _WITHOUT, batches, seconds)]
    logs = []
    for name, policy in policies.items():
        logs.append(Logged(setting.folder / name.replace(" ", "-"), averages(), policy))
        runs.append(_slices(_Checkpointed(logs[-1]), name, batches, seconds))
    try:
        # Slice by slice in turns: a slow minute of the machine hurts all alike.
        for together in zip_longest(*runs):
            yield from (row for row in together if row is not None)
    finally:
        for log in logs:
            log.close()


def _policy(period: int) -> TargetsPolicy:
    return TargetsPolicy(
        records=_OPEN_WINDOWS,
        tuples=2**62,
        interval_ms=_INTERVAL_MS,
        period_ms=period,
        check_us=_CHECK_US,
    )


def scaling(setting: Setting) -> str:
    """What differs from the paper's set-up."""
    return (
        f"{_ITEMS:,} items and stream events of {PAPER_EVENT} as in the paper, "
        f"{_seconds(setting):g} s for each period after a warm-up of {_WARM_TUPLES:,} tuples; "
        f"averages of {_SLICE_S:g} s instead of 1 s, all periods taking turns; the budget takes a "
        f"CHECK to cost {_CHECK_US:g} us, whatever it costs"
    )


def _means(table: pa.Table, column: str) -> dict[str, float]:
    names = [_WITHOUT, _OPENS, *(f"{period} ms" for period in _PERIODS)]
    return {name: mean(table, column, configuration=name) for name in names}


def findings(table: pa.Table) -> list[Finding]:
    """The average of each period."""
    found = [
        Finding(f"Response time, {name}", value, "s", _PAPER_RESPONSE[name])
        for name, value in _means(table, "response_s").items()
    ]
    extents = _means(table, "extent_records")
    found.append(Finding("What a CHECK took, CP = 25 ms", _check_us(table), "us"))
    return found + [
        Finding(f"Extent, CP = {name}", extents[name], "records", paper)
        for name, paper in (("25 ms", "EC-load of 2 s"), ("250 ms", "EC-load of 5 s"))
    ]


def _check_us(table: pa.Table) -> float:
    """Microseconds per CHECK: the share of input lost against no CHECKs, over CHECKs per second."""
    inputs, checks = _means(table, "input_per_s"), _means(table, "checks_per_s")
    return (1 - inputs["25 ms"] / inputs[_OPENS]) * 1e6 / max(1.0, checks["25 ms"])


def plots(table: pa.Table) -> list[Plot]:
    """Fig. 8 over time; Fig. 9 against CP."""
    extents = _means(table, "extent_records")
    periods = sorted(_PERIODS)
    against = {"CP": periods, "extent": [extents[f"{period} ms"] for period in periods]}
    return [
        Plot("Fig. 8: response time of the operator", table, x="at_s", y="response_s",
             x_title="seconds", y_title="seconds from opening to closure", series="configuration"),
        Plot("Fig. 9: extent for different checkpoint periods", pa.table(against), x="CP",
             y="extent", x_title="CP (ms)", y_title="records"),
    ]  # fmt: skip


def verdict(table: pa.Table) -> str:
    """What agrees and what differs."""
    response, extent = _means(table, "response_s"), _means(table, "extent_records")
    slower = {name: response[name] / response[_OPENS] for name in response}
    rises = slower["25 ms"] > slower["100 ms"] > slower["250 ms"]
    falls = extent["25 ms"] < extent["100 ms"] < extent["250 ms"]
    words = {True: "as in the paper", False: "unlike in the paper"}
    times = ", ".join(f"{slower[f'{period} ms']:.2f} at {period} ms" for period in _PERIODS)
    slices = where(table, configuration=_OPENS)["response_s"].to_numpy()
    spread = 100 * float(np.std(slices)) / response[_OPENS]
    return (
        f"Response time against that without CHECKs: {times} (between slices of time it varies by "
        f"{spread:.0f}%, a standard deviation, and smaller differences mean nothing); it "
        f"{'rises' if rises else 'does not always rise'} as the period falls, {words[rises]} (1.0, "
        "1.12, 1.30 and 1.97 times that without CEC). The extent is "
        f"{extent['25 ms']:,.0f} records at 25 ms, {extent['100 ms']:,.0f} at 100 ms and "
        f"{extent['250 ms']:,.0f} at 250 ms; it {'falls' if falls else 'does not always fall'} "
        f"with the period, {words[falls]}. Unlike in the paper, CEC costs something without any "
        f"CHECK: {response[_OPENS] / response[_WITHOUT]:.2f} times the response time without CEC, "
        f"at {response[_WITHOUT]:.2f} s from opening to closure instead of 16.5 s. The budget "
        f"takes a CHECK for {_CHECK_US:g} us; it took {_check_us(table):.2f}."
    )


EXPERIMENT = Experiment(rows, scaling, findings, plots, verdict)

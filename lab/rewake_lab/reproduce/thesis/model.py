"""Thesis 3.2: the analytical model of persistence, fitted to measurements and held against others.

A node without a log reaches z MB/s, its persistence path alone y MB/s.  The model: with a log it
reaches x = min(y, z), or, where both share what limits them, no more than both one after the other
(half, when they are alike: "the outgoing data rate cannot exceed half").  Its memory is
M = x * (t_proc + t_store) (Eq. 3.1).

Each time per stream event is taken to be a + b * w for events of w bytes.  a and b are fitted to
three sizes of tuples; the two sizes between them are held out and only predicted.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from rewake.log.frame import Section, SectionKind, TurnRecord
from rewake.stores import create_log, open_log_writer
from rewake_lab.reproduce.driving import PAPER_EVENT, Clock
from rewake_lab.reproduce.experiment import Experiment, Finding, Plot, Row, Setting, middle
from rewake_lab.reproduce.thesis.paced import stay
from rewake_lab.reproduce.thesis.persistence import BASELINE, STABLE, throughput, tuples_of

_FITTED, _HELD_OUT = (64, 1024, 16384), (256, 4096)
_SIZES = tuple(sorted(_FITTED + _HELD_OUT))
# Of what the node can do: below, it has time to rest, and memory does not simply fill up.
_PACE = 0.3
_MOST_EVENTS_PER_S = 1000.0
SEPARATE, SHARED = "min(y, z)", "shared: 1 / (1/y + 1/z)"


def megabytes_of(setting: Setting, tuple_bytes: int) -> float:
    """How much goes through in one measurement."""
    return (1 if setting.full else 0.2) * {64: 20, 256: 60}.get(tuple_bytes, 200)


def rounds_of(setting: Setting) -> int:
    """How often each is measured."""
    return 4 if setting.full else 2


def seconds_paced(setting: Setting) -> float:
    """Of a run at a pace."""
    return 2.0 if setting.full else 0.7


def rows(setting: Setting) -> Iterator[Row]:
    """All sizes in turn: without a log, the log alone, both, and both at half that pace."""
    for number in range(rounds_of(setting) + 1):
        for size in _SIZES[:: -1 if number % 2 else 1]:
            row = _measured(setting, size, warm_up=not number)
            if number:
                yield {"round": number, **row}


def _measured(setting: Setting, size: int, *, warm_up: bool) -> Row:
    batch = tuples_of(size, PAPER_EVENT, setting.seed)
    event_bytes = size * PAPER_EVENT
    turns = max(4, int(megabytes_of(setting, size) * 1e6 / event_bytes / (10 if warm_up else 1)))
    folder = setting.folder / "log"
    rates = {
        "z": throughput(BASELINE, batch, turns, folder)["megabytes_per_s"],
        "y": _log_alone(batch, turns, folder),
        "x": throughput(STABLE, batch, turns, folder)["megabytes_per_s"],
    }
    pace = min(_PACE * float(rates["x"]) * 1e6 / event_bytes, _MOST_EVENTS_PER_S)
    seconds = 0.1 if warm_up else seconds_paced(setting)
    stayed = stay(batch, pace, max(4, int(pace * seconds)), folder)
    return {
        "tuple_bytes": size,
        "event_bytes": event_bytes,
        **rates,
        "events_per_s": stayed.events_per_s,
        "process_s": stayed.process_s,
        "store_s": stayed.store_s,
        "memory_bytes": stayed.events_inside * event_bytes,
    }


def _log_alone(batch: pa.RecordBatch, turns: int, folder: Path) -> float:
    """MB per second of the persistence path by itself."""
    create_log(folder, "alone")
    rows, sections = batch.num_rows, (Section(SectionKind.RESULTS, batch.serialize().to_pybytes()),)
    with open_log_writer(folder) as writer:
        clock = Clock()
        for number in range(1, turns + 1):
            writer.append(TurnRecord(number * rows - 1, 0, 0, rows, rows, sections))
        writer.flush()
        seconds = clock.seconds
    shutil.rmtree(folder)
    size = sum(int(column.nbytes) for column in batch.columns)
    return size * turns / seconds / 1e6


def scaling(setting: Setting) -> str:
    """What differs from the thesis' set-up."""
    return (
        "the thesis has the model without measurements of its parts, so they are chosen here: "
        f"blocks of {PAPER_EVENT} tuples of {', '.join(map(str, _SIZES))} bytes, of which "
        f"{' and '.join(map(str, _HELD_OUT))} are only predicted; memory at {_PACE:g} of the "
        f"highest pace, at most {_MOST_EVENTS_PER_S:,.0f} blocks/s, for {seconds_paced(setting):g} "
        f"s; median of {rounds_of(setting)} rounds; what both paths share is the processor instead "
        "of a network link"
    )


# --- the model -----------------------------------------------------------------------------------


class _Model:
    """a + b * w seconds for each part, fitted to the sizes that are not held out."""

    def __init__(self, table: pa.Table) -> None:
        self._parts = {
            part: fit_line([(size, _seconds_of(table, part, size)) for size in _FITTED])
            for part in ("z", "y", "process_s", "store_s")
        }

    def seconds(self, part: str, size: int) -> float:
        """What a stream event of tuples of this size takes."""
        fixed, per_byte = self._parts[part]
        return fixed + per_byte * size * PAPER_EVENT

    def rates(self, size: int) -> dict[str, float]:
        """MB per second with a log, by both readings of the model."""
        y, z = (self.seconds(part, size) for part in ("y", "z"))
        megabytes = size * PAPER_EVENT / 1e6
        return {SEPARATE: megabytes / max(y, z), SHARED: megabytes / (y + z)}

    def memory(self, size: int, events_per_s: float) -> float:
        """Bytes: Eq. 3.1."""
        stays = self.seconds("process_s", size) + self.seconds("store_s", size)
        return events_per_s * size * PAPER_EVENT * stays


def _seconds_of(table: pa.Table, part: str, size: int) -> float:
    """What a stream event took there, as it was measured."""
    found = middle(table, part, tuple_bytes=size)
    return found if part.endswith("_s") else size * PAPER_EVENT / 1e6 / found


def fit_line(found: list[tuple[int, float]]) -> tuple[float, float]:
    """The a and b with the least relative error; neither is below nothing."""
    sizes, seconds = np.array(found).T
    sides = np.column_stack([np.ones(sizes.size), sizes * PAPER_EVENT]) / seconds[:, None]
    fixed, per_byte = np.linalg.lstsq(sides, np.ones(sizes.size), rcond=None)[0]
    if fixed < 0:
        return 0.0, float(1 / sides[:, 1].mean())
    if per_byte < 0:
        return float(1 / sides[:, 0].mean()), 0.0
    return float(fixed), float(per_byte)


def _error(predicted: float, measured: float) -> float:
    return 100 * (predicted / measured - 1)


def errors_of(table: pa.Table, size: int) -> dict[str, float]:
    """By how many percent a prediction is too high, for a size that was held out or not."""
    model, x = _Model(table), middle(table, "x", tuple_bytes=size)
    found = {name: _error(rate, x) for name, rate in model.rates(size).items()}
    pace = middle(table, "events_per_s", tuple_bytes=size)
    memory = middle(table, "memory_bytes", tuple_bytes=size)
    return found | {"memory": _error(model.memory(size, pace), memory)}


# --- what is shown -------------------------------------------------------------------------------


def findings(table: pa.Table) -> list[Finding]:
    """What was measured for the sizes held out, and what the model says of them."""
    model, found = _Model(table), []
    for size in _HELD_OUT:
        x, z = (middle(table, each, tuple_bytes=size) for each in ("x", "z"))
        found.append(Finding(f"{size} bytes: with a log / without", x / z, "ratio", "at most 0.5"))
        found.append(Finding(f"{size} bytes: with a log", x, "MB/s"))
        found += [
            Finding(f"{size} bytes: model, {name}", rate, "MB/s")
            for name, rate in model.rates(size).items()
        ]
        pace = middle(table, "events_per_s", tuple_bytes=size)
        memory = middle(table, "memory_bytes", tuple_bytes=size)
        found += [
            Finding(f"{size} bytes: memory at that pace", memory / 1e3, "kB"),
            Finding(f"{size} bytes: model, memory", model.memory(size, pace) / 1e3, "kB"),
        ]
    return found


def plots(table: pa.Table) -> list[Plot]:
    """Measurements and the model, for throughput and memory."""
    model = _Model(table)
    rates: list[Row] = []
    memories: list[Row] = []
    for size in _SIZES:
        w = size * PAPER_EVENT / 1e3
        for name, column in (("without a log (z)", "z"), ("log alone (y)", "y"), ("both (x)", "x")):
            rates.append({"w": w, "rate": middle(table, column, tuple_bytes=size), "what": name})
        rates += [
            {"w": w, "rate": rate, "what": f"model: {name}"}
            for name, rate in model.rates(size).items()
        ]
        pace = middle(table, "events_per_s", tuple_bytes=size)
        memory = middle(table, "memory_bytes", tuple_bytes=size)
        memories.append({"w": w, "kB": memory / 1e3, "what": "measured"})
        memories.append({"w": w, "kB": model.memory(size, pace) / 1e3, "what": "model: Eq. 3.1"})
    return [
        Plot("Throughput: measured, and as the model has it", pa.Table.from_pylist(rates), x="w",
             y="rate", x_title="kB of a stream event", y_title="MB per second", series="what",
             x_scale="log", y_scale="log"),
        Plot("Memory: measured, and as the model has it", pa.Table.from_pylist(memories), x="w",
             y="kB", x_title="kB of a stream event", y_title="kB in the node", series="what",
             x_scale="log", y_scale="log"),
    ]  # fmt: skip


def verdict(table: pa.Table) -> str:
    """What agrees and what differs."""
    errors = {size: errors_of(table, size) for size in _HELD_OUT}
    worst = {
        name: max(abs(errors[size][name]) for size in _HELD_OUT)
        for name in (SEPARATE, SHARED, "memory")
    }
    nearer = min((SEPARATE, SHARED), key=lambda name: worst[name])
    why = {
        SEPARATE: "it is as if the log worked beside the operator rather than instead of it",
        SHARED: "it is as if the log and the operator took turns at what limits both, as the "
        "thesis' traffic did at its link",
    }
    shares = [
        middle(table, "x", tuple_bytes=size) / middle(table, "z", tuple_bytes=size)
        for size in _SIZES
    ]
    words = "; ".join(
        f"{size} bytes: {errors[size][SEPARATE]:+.0f}% by {SEPARATE}, "
        f"{errors[size][SHARED]:+.0f}% if shared, memory {errors[size]['memory']:+.0f}%"
        for size in _HELD_OUT
    )
    return (
        f"Predictions for the sizes that were held out, against measurements: {words}. The reading "
        f"{nearer} is nearer: {why[nearer]}. A log leaves {min(shares):.2f} to {max(shares):.2f} "
        "of the throughput without (the thesis: no more than half where both share a link). "
        "The thesis uses its model to name what matters, not to predict, and gives no errors."
    )


EXPERIMENT = Experiment(rows, scaling, findings, plots, verdict)

"""Thesis Fig. 3.7: what it costs to make metadata durable with the data, for 1 to 8 writers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from rewake.log.frame import Section, SectionKind, TurnRecord
from rewake.log.log import Log
from rewake.log.writing.flight import Limits
from rewake.model.errors import StorageFault
from rewake.stores import LocalStore, LogWriter
from rewake_lab.reproduce.driving import PAPER_EVENT, Clock
from rewake_lab.reproduce.experiment import Experiment, Finding, Plot, Row, Setting, middle, where
from rewake_lab.reproduce.thesis.gang import Gang, Together
from rewake_lab.reproduce.thesis.persistence import tuples_of

LATER, AT_ONCE = "asynchronous metadata", "synchronous metadata"
_WRITERS = (1, 2, 4, 8)
_TUPLE_BYTES = 4096
# Each block is written and synced by itself, as by the thesis' storage servers.
_LIMITS = Limits(batch_frames=1)
_PAPER = {(4, LATER): "68", (4, AT_ONCE): "56", (8, LATER): "86", (8, AT_ONCE): "68"}


class _Everything(LocalStore):
    """Makes all that a file system knows of a file durable with its bytes."""

    def sync(self, name: str) -> None:
        """The file's bytes and its metadata: also those that are not needed to read it."""
        with self._reporting("sync", name, full=StorageFault):
            os.fsync(self._descriptor(name))


_STORES: dict[str, type[LocalStore]] = {LATER: LocalStore, AT_ONCE: _Everything}


def _write(together: Together, folder: str, kind: str, blocks: int) -> None:
    """In a process of its own: write so many blocks to a log of its own."""
    stores = [_STORES[kind](folder, create=True)]
    Log.create(stores, "writer", log_id=1)
    point = Log.open_for_append(stores, holder="writer")
    payload = tuples_of(_TUPLE_BYTES, PAPER_EVENT, 1).serialize().to_pybytes()
    sections = (Section(SectionKind.RESULTS, payload),)
    with LogWriter(stores, point, limits=_LIMITS) as writer:
        together()
        for number in range(blocks):
            end = (number + 1) * PAPER_EVENT
            writer.append(TurnRecord(end - 1, 0, 0, PAPER_EVENT, PAPER_EVENT, sections))
        writer.flush()
        together()


def aggregate_rate(kind: str, writers: int, blocks: int, folder: Path) -> Row:
    """Bytes per second that so many writers make durable together."""
    with Gang() as gang:
        for number in range(writers):
            gang.start(_write, str(folder / f"writer-{number}"), kind, blocks)
        gang.together()
        clock = Clock()
        gang.together()
        seconds = clock.seconds
    shutil.rmtree(folder)
    size = _TUPLE_BYTES * PAPER_EVENT * blocks * writers
    return {"metadata": kind, "writers": writers, "megabytes_per_s": size / seconds / 1e6}


def _megabytes(setting: Setting) -> int:
    """Of all writers together."""
    return 400 if setting.full else 60


def _rounds(setting: Setting) -> int:
    return 5 if setting.full else 3


def rows(setting: Setting) -> Iterator[Row]:
    """All numbers of writers with both kinds of metadata, taking turns."""
    blocks = _megabytes(setting) * 1e6 / (_TUPLE_BYTES * PAPER_EVENT)
    cases = [(writers, kind) for writers in _WRITERS for kind in _STORES]
    for number in range(_rounds(setting)):
        for writers, kind in cases[:: -1 if number % 2 else 1]:
            each = max(1, int(blocks / writers))
            yield {
                "round": number,
                **aggregate_rate(kind, writers, each, setting.folder / "writers"),
            }


def scaling(setting: Setting) -> str:
    """What differs from the thesis' set-up."""
    return (
        f"{_megabytes(setting)} MB by all writers together, each block of {PAPER_EVENT} tuples of "
        "4 KB written and synced by itself; writers are processes with logs on one local disk "
        "instead of clients of a storage server; asynchronous: fdatasync, as our logs do; "
        "synchronous: fsync; median of "
        f"{_rounds(setting)} rounds"
    )


def _rate(table: pa.Table, writers: int, kind: str) -> float:
    return middle(table, "megabytes_per_s", writers=writers, metadata=kind)


def _share(table: pa.Table, writers: int) -> float:
    return _rate(table, writers, AT_ONCE) / _rate(table, writers, LATER)


def findings(table: pa.Table) -> list[Finding]:
    """Both curves, and how far they are apart."""
    found = []
    for writers in _WRITERS:
        label = f"{writers} writer{'s' if writers > 1 else ''}"
        for kind in _STORES:
            rate, paper = _rate(table, writers, kind), _PAPER.get((writers, kind), "")
            found.append(Finding(f"{label}, {kind}", rate, "MB/s", paper))
        paper = {1: "1", 4: "0.82", 8: "0.79"}.get(writers, "")
        name = f"{label}: synchronous / asynchronous"
        found.append(Finding(name, _share(table, writers), "ratio", paper))
    return found


def plots(table: pa.Table) -> list[Plot]:
    """The two curves."""
    shown = [
        {"writers": writers, "rate": _rate(table, writers, kind), "metadata": kind}
        for kind in _STORES
        for writers in _WRITERS
    ]
    return [
        Plot("What all writers make durable together", pa.Table.from_pylist(shown), x="writers",
             y="rate", x_title="writers", y_title="MB per second", kind="bar", series="metadata")
    ]  # fmt: skip


def _slower(table: pa.Table) -> list[int]:
    """With how many writers synchronous metadata were slower in every round."""
    found = []
    for writers in _WRITERS:
        later, at_once = (
            where(table, writers=writers, metadata=kind)["megabytes_per_s"].to_numpy()
            for kind in (LATER, AT_ONCE)
        )
        if at_once.max() < later.min():
            found.append(writers)
    return found


def verdict(table: pa.Table) -> str:
    """What agrees and what differs."""
    shares = ", ".join(f"{_share(table, writers):.2f}" for writers in _WRITERS)
    slower = ", ".join(map(str, _slower(table)))
    gain = _rate(table, 8, LATER) / _rate(table, 1, LATER)
    return (
        f"With synchronous metadata 1, 2, 4 and 8 writers reach {shares} of the throughput with "
        "asynchronous ones (the thesis: 1 with one, 0.82 with 4 and 0.79 with 8). "
        + (
            f"They are slower in every round with {slower}"
            if slower
            else "With no number of writers are they slower in every round"
        )
        + f". Eight writers together are {gain:.2f} times as fast as one. A log grows, so that its "
        "length has to be made durable with its bytes in both cases; what else the thesis' servers "
        "had to make durable it does not tell, and there may have been more to save."
    )


EXPERIMENT = Experiment(rows, scaling, findings, plots, verdict)

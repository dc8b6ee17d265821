"""Reading a log of instant checkpoints backwards: the newest full checkpoint and what came after.

The frames' layout is in `approach`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from rewake.log.columns import pack_columns, unpack_columns
from rewake.log.frame import Frame, Section, SectionKind
from rewake.model.errors import DamagedFrame, DamagedLog
from rewake.operators.columns.arrays import Int64s
from rewake.operators.stateful import StoredParts
from rewake.recovery.eventual.reading import Construction

RESULTS_ONLY, FULL, DELTA = 0, 1, 2


class CheckpointMark(NamedTuple):
    """What every frame says besides results and parts."""

    time: int
    clock: int
    kind: int
    late_tuples: int
    emitted: Int64s

    @staticmethod
    def section(numbers: Int64s, emitted: Int64s) -> Section:
        """The METADATA section: kind and late tuples; then tuples so far, by output."""
        return Section(SectionKind.METADATA, pack_columns([numbers, emitted]))

    @classmethod
    def of(cls, frame: Frame) -> CheckpointMark:
        """Read a frame's."""
        payload = frame.section(SectionKind.METADATA)
        columns = [] if payload is None else unpack_columns(payload)
        if (
            len(columns) != 2
            or any(column.dtype != np.int64 for column in columns)
            or columns[0].size != 2
            or columns[1].size > 256
        ):
            raise DamagedFrame(
                f"frame {frame.sequence} is none of instant checkpoints: the log was written under "
                "another approach"
            )
        kind, late = (int(number) for number in columns[0])
        emitted = columns[1]
        if kind not in (RESULTS_ONLY, FULL, DELTA) or late < 0 or np.any(emitted < 0):
            raise DamagedFrame(f"frame {frame.sequence} has impossible metadata")
        return cls(frame.t_end, frame.timestamp, kind, late, emitted)


class FoundCheckpoint(NamedTuple):
    """The newest checkpoint (None: replay from the beginning), and what the log says after it.

    `clocks` are those after each frame behind it, in order, by the position they are before.
    `records` and `frames` are how many parts and frames were read.
    """

    newest: CheckpointMark
    checkpoint: CheckpointMark | None
    deltas: int
    openings: StoredParts
    snapshots: StoredParts
    clocks: dict[int, list[int]]
    records: int
    frames: int


class _Search:
    """Reads frames newest first, through the newest full checkpoint."""

    def __init__(self, newest: Frame) -> None:
        self.newest = CheckpointMark.of(newest)
        self.checkpoint: CheckpointMark | None = None
        self.deltas = -1
        self.clocks: dict[int, list[int]] = {}
        self.frames = self.records = 0
        self.building: Construction | None = None
        self.done = False
        self._time = newest.t_end

    def read(self, frame: Frame) -> None:
        """One more; `done` when it is the full checkpoint."""
        mark = CheckpointMark.of(frame)
        if not -1 <= mark.time <= self._time:
            raise DamagedFrame(f"frame {frame.sequence} ends at the impossible time {mark.time}")
        self._time = mark.time
        self.frames += 1
        if mark.kind != RESULTS_ONLY:
            if self.building is None:
                self.checkpoint, self.building = mark, Construction(frame)
            self.building.read(frame)
            self.deltas += 1
            self.done = mark.kind == FULL
        elif self.checkpoint is None:
            self.clocks.setdefault(mark.time + 1, []).insert(0, mark.clock)

    def found(self) -> FoundCheckpoint:
        """What was read, when all of it was there."""
        building = self.building
        parts = [_no_parts(), _no_parts()]
        if building is not None:
            parts = [building.openings.stored(), building.snapshots.stored()]
        return FoundCheckpoint(
            newest=self.newest,
            checkpoint=self.checkpoint,
            deltas=self.deltas,
            openings=parts[0],
            snapshots=parts[1],
            clocks=self.clocks,
            records=building.found if building is not None else 0,
            frames=self.frames,
        )


def _no_parts() -> StoredParts:
    nothing = np.zeros(0, np.int64)
    return StoredParts(nothing, nothing, [], [], [])


def search(frames: Iterable[Frame]) -> FoundCheckpoint | None:
    """What a log of instant checkpoints says, given newest frame first; None for an empty log."""
    reading: _Search | None = None
    frame: Frame | None = None
    for frame in frames:
        reading = reading or _Search(frame)
        reading.read(frame)
        if reading.done:
            break
    if reading is None or frame is None:
        return None
    _check_complete(reading, frame)
    return reading.found()


def _check_complete(reading: _Search, oldest: Frame) -> None:
    building = reading.building
    # Without any checkpoint, everything is replayed: the log must not have been trimmed.
    whole = reading.done or (building is None and oldest.sequence == 0)
    if whole and (building is None or building.found == building.wanted):
        return
    raise DamagedLog(
        f"the log from frame {oldest.sequence} on has no full checkpoint with all of its windows: "
        "it was trimmed too far, or belongs to another operator; restore the older segments",
        segment=oldest.segment,
        offset=oldest.offset,
        sequence=oldest.sequence,
    )

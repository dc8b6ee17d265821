"""Constructing the eventual checkpoint from the output log (CEC II.B).

The log is read backwards from its end (input time `tc`).  The last frame says how many windows were
open then (N): that many different footprints are looked for.  A window whose end is met first is
skipped; of several footprints of a window the newest counts.  T is the oldest footprint time among
them: input after T must be replayed.

How footprints are stored: as columns, packed in the way of `log.columns` or of `packing`, which
tell themselves apart.  In every section column 0 is `t_end - id`, where a window's id is the
position of the tuple that opened it.
- OPENS: an opened window holds "initially null state" (Thesis 4.1): its footprint time is just
  before the tuple that opened it, and the columns that follow are its key and number, no state.
- CHECKS: the whole state as of `t_end`.
- CLOSED: windows that were open before the turn and are not after it; their RESULTs, if they have
  any, are in the same frame.
- METADATA: how many tuples were late so far, then, where stream events must be replayed whole, the
  position at which the turn started (of a turn that opened windows).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numba import njit

from rewake.log.columns import pack_columns, unpack_columns
from rewake.log.frame import Frame, SectionKind
from rewake.model.errors import DamagedFrame, DamagedLog
from rewake.operators.columns.arrays import Array, Int64s, capacity_for
from rewake.operators.stateful import StoredParts
from rewake.recovery.eventual.decided import Decided
from rewake.recovery.packing import unpack_any

Pack = Callable[[list[Array]], bytes]

# Positions stay below this, so that no sum or difference of two can overflow.
_LAST_POSITION = 2**62
_MANY_WINDOWS = 1 << 22


@njit(cache=True, nogil=True)
def _ages(ids, t_end, ages):  # type: ignore[no-untyped-def]
    """How long ago parts opened, in 32 bits; False when one is older than that."""
    fits = True
    for i in range(ids.size):
        age = t_end - ids[i]
        fits &= age < 2**32
        ages[i] = age
    return fits


def pack_parts(ids: Int64s, t_end: int, columns: list[Array], pack: Pack = pack_columns) -> bytes:
    """A footprint section: how long ago each part opened, then the operator's columns."""
    ages = np.empty(ids.size, np.uint32)
    fits = _ages(ids, t_end, ages)
    return pack([ages if fits else t_end - ids, *columns])


def unpack_parts(
    payload: memoryview | None, t_end: int, most: int | None = None
) -> tuple[Int64s, list[Array]]:
    """Ids and the operator's columns of a footprint section; nothing when there is none.

    With `most`, room is made for no more than so many footprints, whatever the section says.
    """
    section = _section(payload, t_end, most)
    return t_end - section.ages.astype(np.int64), section.columns


class _Section(NamedTuple):
    """A footprint section: ages as of the end of its turn, the oldest, and the columns.

    `one_by_one`: each opened after the one before.
    """

    ages: Array
    oldest: int
    one_by_one: bool
    columns: list[Array]


_NO_SECTION = _Section(np.zeros(0, np.uint32), 0, True, [])


def _section(payload: memoryview | None, t_end: int, most: int | None = None) -> _Section:
    if payload is None:
        return _NO_SECTION
    columns = unpack_any(payload, most)
    if not columns or columns[0].dtype not in (np.uint32, np.int64):
        raise DamagedFrame("a footprint section does not start with a column of ages")
    ages = columns[0]
    if not ages.size:
        return _NO_SECTION._replace(columns=columns[1:])
    youngest, oldest, one_by_one = _span(ages)
    if not 0 <= youngest <= oldest <= t_end:
        raise DamagedFrame(f"a footprint of a window that opened before 0 or after {t_end}")
    return _Section(ages, oldest, one_by_one, columns[1:])


@njit(cache=True, nogil=True)
def _span(ages):  # type: ignore[no-untyped-def]
    """The smallest and the largest age, and whether they fall from one to the next."""
    least = most = before = np.int64(ages[0])
    falling = True
    for i in range(1, ages.size):
        age = np.int64(ages[i])
        if age >= before:
            falling = False
        least, most, before = min(least, age), max(most, age), age
    return least, most, falling


@njit(cache=True, nogil=True)
def _find(ages, rows, t_end, opened, back, found, at):  # type: ignore[no-untyped-def]
    """Put ids, footprint times and records to the end of the log of some rows into columns."""
    for n in range(rows.size):
        row = rows[n]
        opened_at = t_end - np.int64(ages[row])
        found[0, at + n] = opened_at
        # An opened part holds no tuple yet just before the tuple that opened it.
        found[1, at + n] = opened_at - 1 if opened else t_end
        found[2, at + n] = back - row


class _Found:
    """Footprints found so far of one kind, with what is known of each; hardly more than `most`."""

    def __init__(self, most: int) -> None:
        # Room that is not used takes no memory; but a log that lies must not get any that it wants.
        self._known = np.empty((3, min(most, _MANY_WINDOWS)), np.int64)
        self.size = 0
        self._columns: list[list[Array]] = []
        self._rows: list[Array] = []
        self._totals: list[int] = []

    def add(self, section: _Section, rows: Int64s, t_end: int, back: int, *, opened: bool) -> None:
        """Take over some rows; the section's first record is `back` from the end of the log."""
        end = self.size + rows.size
        if end > self._known.shape[1]:
            larger = np.empty((3, capacity_for(end, 2 * self.size)), np.int64)
            larger[:, : self.size] = self._known[:, : self.size]
            self._known = larger
        _find(section.ages, rows, t_end, opened, back, self._known, self.size)
        self.size = end
        self._columns.append(section.columns)
        self._rows.append(rows)
        self._totals.append(section.ages.size)

    @property
    def back(self) -> Int64s:
        """Records from each to the end of the log."""
        return self._known[2, : self.size]

    def stored(self) -> StoredParts:
        """The footprints as operators take them."""
        ids, times, _ = self._known[:, : self.size]
        return StoredParts(ids, times, self._columns, self._rows, self._totals)


@dataclass(frozen=True, slots=True)
class EventualCheckpoint:
    """The windows W with their footprints, as of `time` (tc).

    `oldest_time` is T; input positions after it must be replayed.  The records of the extent are
    numbered from 0 at its start: `footprint_records` are the numbers of the footprints (openings
    first), `frame_starts` those of the first record of each frame.
    """

    time: int
    clock: int
    late_tuples: int
    openings: StoredParts
    snapshots: StoredParts
    footprint_records: Int64s
    extent_records: int
    frame_starts: list[int]
    next_sequence: int
    # Start and end of the turns that opened windows, oldest first, where the log says so.
    turns: list[tuple[int, int]] = field(default_factory=list)

    @property
    def windows(self) -> int:
        """N: how many windows were open."""
        return self.openings.ids.size + self.snapshots.ids.size

    @property
    def oldest_time(self) -> int:
        """T: the oldest footprint time, or `time` when no window was open."""
        times = (each.applied for each in (self.openings, self.snapshots) if each.applied.size)
        return min((int(each.min()) for each in times), default=self.time)

    @property
    def tuples_to_replay(self) -> int:
        """u: input tuples between T and tc."""
        return self.time - self.oldest_time


class Construction:
    """Reads frames newest first until every open window has been found."""

    def __init__(self, last: Frame) -> None:
        self.wanted = last.open_windows
        self.records = 0
        self.frame_backs: list[int] = []
        self.openings = _Found(self.wanted)
        self.snapshots = _Found(self.wanted)
        # No frame that is older than those read may end later than this.
        self._latest = _LAST_POSITION
        self._end = last.t_end
        self._decided = Decided()

    @property
    def found(self) -> int:
        """How many open windows have been found."""
        return self.openings.size + self.snapshots.size

    def read(self, frame: Frame) -> None:
        """Take over the footprints of windows that are still undecided."""
        if not -1 <= frame.t_end <= self._latest:
            raise DamagedFrame(f"frame {frame.sequence} ends at the impossible time {frame.t_end}")
        t_end, records, since = frame.t_end, frame.records, self._end - frame.t_end
        ended = _section(frame.section(SectionKind.CLOSED), t_end)
        opened = _section(frame.section(SectionKind.OPENS), t_end, records)
        checked = _section(frame.section(SectionKind.CHECKS), t_end, records)
        if not opened.one_by_one:
            raise DamagedFrame(f"the windows of frame {frame.sequence} do not open one by one")
        self._latest = t_end - opened.oldest - 1 if opened.ages.size else t_end
        footprints = opened.ages.size + checked.ages.size
        if footprints > records:
            raise DamagedFrame(
                f"frame {frame.sequence} states {records} records but holds {footprints} footprints"
            )
        self._decided.add(ended.ages, since, ended.oldest)
        # The last records of a frame are its OPENs, then its CHECKs, both in order.
        for section, back, into in (
            (checked, self.records + checked.ages.size, self.snapshots),
            (opened, self.records + footprints, self.openings),
        ):
            rows = self._decided.missing(section.ages, since, section.oldest)
            if rows.size:
                if self._decided.add(section.ages, since, section.oldest, rows) != rows.size:
                    raise DamagedFrame("a frame holds two footprints of one window in one section")
                into.add(section, rows, t_end, back, opened=section is opened)
        self.records += records
        self.frame_backs.append(self.records)


def construct(frames: Iterable[Frame]) -> EventualCheckpoint | None:
    """The eventual checkpoint of a log given newest frame first; None for an empty log."""
    building: Construction | None = None
    last: Frame | None = None
    turns: list[tuple[int, int]] = []
    for frame in frames:
        if building is None or last is None:
            last, building = frame, Construction(frame)
        building.read(frame)
        start = _metadata(frame)[1]
        if start is not None:
            turns.append((start, frame.t_end + 1))
        if building.found >= building.wanted:
            break
    if building is None or last is None:
        return None
    if building.found != building.wanted:
        raise DamagedLog(
            f"the last frame (sequence {last.sequence}) says that {building.wanted} windows were "
            f"open, but the log holds footprints of {building.found}: it was trimmed too far, or "
            "belongs to another operator; restore the older segments",
            segment=last.segment,
            offset=last.offset,
            sequence=last.sequence,
        )
    records: Int64s = np.concatenate([building.openings.back, building.snapshots.back])
    np.subtract(building.records, records, out=records)
    return EventualCheckpoint(
        time=last.t_end,
        clock=last.timestamp,
        late_tuples=_metadata(last)[0],
        openings=building.openings.stored(),
        snapshots=building.snapshots.stored(),
        footprint_records=records,
        extent_records=building.records,
        frame_starts=[building.records - back for back in reversed(building.frame_backs)],
        next_sequence=last.sequence + 1,
        turns=turns[::-1],
    )


def pack_metadata(late_tuples: int, turn_start: int | None) -> bytes:
    """A METADATA section."""
    numbers = (late_tuples,) if turn_start is None else (late_tuples, turn_start)
    return pack_columns([np.array([number], np.int64) for number in numbers])


def late_tuples_in(frame: Frame) -> int:
    """How many tuples were late until a frame."""
    return _metadata(frame)[0]


def _metadata(frame: Frame) -> tuple[int, int | None]:
    """How many tuples were late so far, and where the turn started, if the frame says so."""
    payload = frame.section(SectionKind.METADATA)
    if payload is None:
        return 0, None
    columns = unpack_columns(payload)
    if not 1 <= len(columns) <= 2 or any(
        column.size != 1 or column.dtype != np.int64 for column in columns
    ):
        raise DamagedFrame(f"frame {frame.sequence} has metadata of another operator")
    late, *starts = (int(column[0]) for column in columns)
    if late < 0 or any(not 0 <= start <= frame.t_end for start in starts):
        raise DamagedFrame(f"frame {frame.sequence} counts {late} late tuples, starts at {starts}")
    return late, starts[0] if starts else None

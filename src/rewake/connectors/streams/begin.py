"""Where to begin in a stream, or to end: said in one way by sources, subscriptions and options.

    "earliest"                 what is still there
    "latest"                   what comes from now on
    1200                       a position
    {0: 1200, 1: 980}          a position for each shard; a list of them, or a JSON object as text
    "2026-03-01T12:00:00Z"     a time: from when the stream's clock showed it (also a datetime)
    "time 1700000000"          the same in the unit of the stream's own time

What always holds: what has been said is settled to positions once, by what a log has at that
moment; from a time on and before it is everything, once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import pyarrow as pa

from rewake.log.files.layout import MAX_COUNT
from rewake.log.reading.reader import LogReader
from rewake.model.errors import OutOfRange, UsageError
from rewake.model.near import did_you_mean
from rewake.model.stream_event import TIME_LIMIT, told_by

__all__ = [
    "EARLIEST",
    "LATEST",
    "Begin",
    "Moment",
    "Place",
    "Positions",
    "Time",
    "first_since",
    "in_unit",
    "last_time",
    "place_in",
    "place_of_shard",
    "position_at",
    "positions_in",
    "settled",
    "shown_time",
    "time_in",
    "time_said",
]

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

# What a user may say.
Begin: TypeAlias = str | int | datetime | Sequence[int] | Mapping[int, int]
# A number in the unit of the stream's time, or a date.
Time: TypeAlias = int | datetime
# One position for every shard, or one for each shard by its number.
Positions: TypeAlias = int | dict[int, int]

_UNITS: Final = {"s": 10**6, "ms": 10**3, "us": 1}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERED: Final = re.compile(r"time\s+([+-]?\d{1,18})")


@dataclass(frozen=True, slots=True)
class Moment:
    """A time of the stream."""

    time: Time

    @property
    def words(self) -> str | datetime:
        """How a user would say it."""
        return self.time if isinstance(self.time, datetime) else f"time {self.time}"


# What was said, checked: a word, a position, one for each shard, or a time.
Place: TypeAlias = str | Positions | Moment


# --- what was said ---------------------------------------------------------------------------


def place_in(name: str, said: Begin) -> Place:
    """What a user has said for `name`; `UsageError` when it is none of the above."""
    found: Any = said.strip() if isinstance(said, str) else said
    if isinstance(found, str):
        return _place_in_text(name, found)
    if isinstance(found, datetime):
        return Moment(found if found.tzinfo is not None else found.replace(tzinfo=UTC))
    if _is_position(found):
        return int(found)
    # Bytes are numbers to Python, and nobody's positions.
    if isinstance(found, Sequence) and not isinstance(found, bytes | bytearray | memoryview):
        found = dict(enumerate(found))
    if isinstance(found, Mapping) and _are_positions(found):
        return dict(found)
    raise _unknown(name, said)


def place_of_shard(name: str, place: Place, shard: int, shards: int) -> str | int | Moment:
    """What that means for one shard of so many."""
    if isinstance(place, dict):
        if len(place) != shards or shard not in place:
            raise UsageError(
                f"{name} gives positions of shards {sorted(place)}, and the stream has {shards}: "
                f"give one for each, from 0 to {shards - 1}"
            )
        return place[shard]
    if shards > 1 and isinstance(place, int) and place > 0:
        raise UsageError(
            f"{name}={place} of a stream with {shards} shards: positions count in each shard; "
            f"give a list of {shards} positions, a time, {EARLIEST!r} or {LATEST!r}"
        )
    return place


def _place_in_text(name: str, text: str) -> Place:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    positions = positions_in(text)
    if positions is not None:
        return positions
    time = time_said(text)
    if time is None:
        raise _unknown(name, text)
    return Moment(time)


def positions_in(text: str) -> Positions | None:
    """A position, or one for each shard; None when the text says neither."""
    if re.fullmatch(r"\d{1,18}", text):
        return int(text)
    if text.startswith("{"):
        with suppress(ValueError):
            given = {int(shard): position for shard, position in json.loads(text).items()}
            return given if _are_positions(given) else None
    return None


def time_said(text: str) -> Time | None:
    """A date, or a number behind "time"; None when the text says neither."""
    found = _NUMBERED.fullmatch(text)
    return _moment_in(text) if found is None else int(found[1])


def _is_position(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_COUNT


def _are_positions(given: Mapping[Any, Any]) -> bool:
    return bool(given) and all(map(_is_position, [*given, *given.values()]))


def _unknown(name: str, said: object) -> UsageError:
    hint = did_you_mean(said, (EARLIEST, LATEST)) if isinstance(said, str) else None
    return UsageError(
        f"{name}={said!r}{hint or ';'} give {EARLIEST!r}, {LATEST!r}, a position (a whole number "
        'from 0 on), one for each shard ({"0": 17}), a time such as 2026-03-01T12:00:00Z, or '
        "'time 17' in the unit of the stream's own time"
    )


def _moment_in(text: str) -> datetime | None:
    """A date, of UTC unless it says otherwise; None when the text is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


# --- what that is in a log -------------------------------------------------------------------


def settled(
    name: str,
    place: str | int | Moment,
    reader: LogReader,
    kind: pa.DataType | None,
    *,
    live: bool = False,
) -> int:
    """The position in a log, whose times are of this type; a position is left as it is.

    `live`: what comes later is read, too.  A time that the stream has not reached is refused then:
    where it will be is not known yet, and rows from before it would come.
    """
    if isinstance(place, int):
        return place
    if isinstance(place, Moment):
        position = position_at(reader, name, place.time, kind, up=True)
        if live and position == reader.end_position and reader.end_timestamp < TIME_LIMIT:
            raise UsageError(
                f"{name}={place.words!r}: the stream has not come to that time yet, and rows from "
                "before it would be read; begin at 'latest', or ask again when it is there"
            )
        return position
    return reader.view.first_position if place == EARLIEST else reader.end_position


def position_at(
    reader: LogReader, name: str, time: Time, kind: pa.DataType | None, *, up: bool
) -> int:
    """The position of the first row from a time on; with `up` false, of the first after it.

    What left at the end of the stream came right behind its last time: it is before all later ones.
    """
    last = last_time(reader)
    ended = reader.end_timestamp >= TIME_LIMIT
    timeless = shown_time(last, kind) is None
    if reader.end_sequence and timeless and (kind is None or not ended):
        raise UsageError(
            f"{name}: the stream has no event time, so it cannot be read by time; read it by "
            "position"
        )
    timestamp = time_in(name, time, kind, up=up) + (not up)
    return reader.end_position if timestamp > last else first_since(reader, timestamp)


def last_time(reader: LogReader) -> int:
    """The latest time that the stream's clock has shown; of one that has ended, before the end."""
    if reader.end_timestamp < TIME_LIMIT:
        return reader.end_timestamp
    if reader.view.first_timestamp >= TIME_LIMIT:
        raise OutOfRange(
            "what is kept of the stream left at its end, and the time before that is no longer in "
            "the log; read it by position"
        )
    end = next(reader.frames(from_timestamp=TIME_LIMIT))
    if end.sequence == reader.first_sequence:
        return reader.view.first_timestamp
    return next(reader.frames(from_sequence=end.sequence - 1)).timestamp


def first_since(reader: LogReader, timestamp: int) -> int:
    """The position of the first row in a frame of this time or a later one."""
    if timestamp > reader.end_timestamp:
        return reader.end_position
    frame = next(reader.frames(from_timestamp=timestamp), None)
    return reader.end_position if frame is None else frame.position


def shown_time(clock: int, kind: pa.DataType | None) -> int | None:
    """A frame's time in the stream's unit; None where its clock showed none."""
    fine = kind is not None and pa.types.is_timestamp(kind) and kind.unit == "ns"
    return told_by(clock, nanoseconds=fine)


def time_in(name: str, value: Time, kind: pa.DataType | None, *, up: bool) -> int:
    """A time in the unit of the stream's own, `kind`, which is None when the stream says none.

    What lies between two units becomes the later one when `up`.
    """
    if isinstance(value, int):
        return value
    if kind is None or not pa.types.is_timestamp(kind):
        what = "says no unit of its time" if kind is None else "keeps time as plain numbers"
        raise UsageError(f"{name}: the stream {what}; give a whole number instead of a date")
    return in_unit((value - _EPOCH) // timedelta(microseconds=1), kind.unit, up=up)


def in_unit(microseconds: int, unit: str, *, up: bool = True) -> int:
    """A time in another unit; what lies between two becomes the later one when `up`."""
    if unit == "ns":
        return microseconds * 1000
    return -(-microseconds // _UNITS[unit]) if up else microseconds // _UNITS[unit]

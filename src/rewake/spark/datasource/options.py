"""The options of reads and writes, checked as a whole before anything is opened.

What always holds: an option that is not known, or has no meaning for what is asked, is refused with
words; none is ever ignored.  Positions count from 0, beginnings are inclusive and ends exclusive.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from rewake.connectors.streams.begin import (
    Place,
    Positions,
    Time,
    place_in,
    positions_in,
    time_said,
)
from rewake.model.errors import UsageError
from rewake.model.near import did_you_mean
from rewake.stores.places import local_path

__all__ = [
    "CONTROL",
    "RESULTS",
    "STATE",
    "Mode",
    "ReadOptions",
    "WriteOptions",
    "read_options",
    "write_options",
]

RESULTS: Final = "results"
CONTROL: Final = "control"
STATE: Final = "state"

_NAMESPACE: Final = uuid.UUID("6f0ce06c-8a2a-4d5e-9a55-0d0f2f0f4b52")
_WHOLE: Final = re.compile(r"[+-]?\d{1,18}")


class Mode(StrEnum):
    """What the options are for."""

    BATCH = "batch"
    STREAM = "streaming"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read of which stream; every field but `path` has the option's name in snake case."""

    path: str
    stream: str | None = None
    kind: str = RESULTS
    columns: tuple[str, ...] | None = None
    metadata: bool = False
    begin: Place | None = None
    end: Place | None = None
    as_of: Time | None = None
    as_of_position: Positions | None = None
    last_rows: int | None = None
    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_partitions: int | None = None
    rows_per_partition: int | None = None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a write may be told; every field has the option's name in snake case."""

    path: str
    key: tuple[str, ...] | None = None
    shards: int | None = None
    time: str | None = None
    query_id: bytes | None = None
    takeover: bool = False
    # Whether gaps in the numbers of batches are allowed, and rows kept that were written otherwise.
    gaps: bool = False
    other_rows: bool = False


# --- values ----------------------------------------------------------------------------------


def _text(name: str, value: str) -> str:
    if not value.strip():
        raise UsageError(f"option {name} is empty; give a value, or leave it out")
    return value.strip()


def _path(name: str, value: str) -> str:
    return os.path.abspath(local_path(_text(name, value)))


def _kind(name: str, value: str) -> str:
    lowered = value.strip().lower()
    if lowered not in (RESULTS, CONTROL, STATE):
        raise UsageError(f"{name}={value!r}; give {RESULTS}, {CONTROL} or {STATE}")
    return lowered


def _choice(positive: str, negative: str) -> Callable[[str, str], bool]:
    """A reader of one of two words."""

    def read(name: str, value: str) -> bool:
        lowered = value.strip().lower()
        if lowered not in (positive, negative):
            raise UsageError(f"{name}={value!r}; give {positive} or {negative}")
        return lowered == positive

    return read


def _identifier(name: str, value: str) -> bytes:
    """Any text is an identifier; that of Spark's queries and of others never meet."""
    try:
        return uuid.UUID(value).bytes
    except ValueError:
        return uuid.uuid5(_NAMESPACE, _text(name, value)).bytes


def _names(name: str, value: str) -> tuple[str, ...]:
    names = tuple(each.strip() for each in value.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise UsageError(f"{name}={value!r}; give each column once, separated by commas")
    return names


def _count(name: str, value: str) -> int:
    if not _WHOLE.fullmatch(value.strip()) or int(value) < 1:
        raise UsageError(f"{name}={value!r}; give a whole number of 1 or more")
    return int(value)


def _positions(name: str, value: str) -> Positions:
    positions = positions_in(value.strip())
    if positions is None:
        raise UsageError(
            f'{name}={value!r}; give a position (0, 1, ...), or one for each shard: {{"0": 17}}'
        )
    return positions


def _time(name: str, value: str) -> Time:
    """A time; where nothing else is meant, a number alone is one too."""
    stripped = value.strip()
    time = int(stripped) if _WHOLE.fullmatch(stripped) else time_said(stripped)
    if time is None:
        raise UsageError(
            f"{name}={value!r}; give a time such as 2026-03-01T12:00:00Z (UTC unless it says "
            "otherwise), or a number in the unit of the stream's time"
        )
    return time


# --- the tables of options -------------------------------------------------------------------

_EVERY_KIND: Final = frozenset({RESULTS, CONTROL, STATE})
_ROWS: Final = frozenset({RESULTS, CONTROL})
_RESULTS: Final = frozenset({RESULTS})
_BATCH: Final = frozenset({Mode.BATCH})
_STREAM: Final = frozenset({Mode.STREAM})
_BOTH: Final = frozenset(Mode)


@dataclass(frozen=True, slots=True)
class _Option:
    """How an option is called and read, and with what it has a meaning."""

    name: str
    read: Callable[[str, str], Any]
    modes: frozenset[Mode] = _BOTH
    kinds: frozenset[str] = _EVERY_KIND

    @property
    def field(self) -> str:
        """Its name in snake case."""
        return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", self.name)


_READING: Final = (
    _Option("path", _path),
    _Option("stream", _text),
    _Option("kind", _kind),
    _Option("columns", _names),
    _Option("metadata", _choice("true", "false"), kinds=_RESULTS),
    _Option("begin", place_in, kinds=_ROWS),
    _Option("end", place_in, _BATCH, _ROWS),
    _Option("asOf", _time, _BATCH),
    _Option("asOfPosition", _positions, _BATCH),
    _Option("lastRows", _count, _BATCH, _RESULTS),
    _Option("maxRowsPerTrigger", _count, _STREAM),
    _Option("maxBytesPerTrigger", _count, _STREAM),
    _Option("minPartitions", _count, kinds=_ROWS),
    _Option("rowsPerPartition", _count, kinds=_RESULTS),
)
_WRITING: Final = (
    _Option("path", _path),
    _Option("key", _names),
    _Option("shards", _count),
    _Option("time", _text),
    _Option("queryId", _identifier),
    _Option("takeover", _choice("true", "false")),
    _Option("gaps", _choice("allow", "refuse")),
    _Option("otherRows", _choice("keep", "refuse")),
)
# What Spark itself reads from the options of a streaming write.
_OF_SPARK: Final = frozenset({"checkpointlocation"})

# What others call it; names that look alike say where to end.
_BEGINNINGS: Final = (
    "position", "fromposition", "startposition", "startingposition", "fromtime", "startingfrom",
    "startingoffsets", "startingtimestamp", "offset",
)  # fmt: skip

# Two of these would each say where the stretch begins, or where it ends.
_RIVALS: Final = (
    ("begin", "lastRows"),
    ("end", "asOf", "asOfPosition"),
    ("minPartitions", "rowsPerPartition"),
)


def read_options(given: Mapping[str, str], mode: Mode | None = None) -> ReadOptions:
    """The options of a read; without a mode, those of any mode pass."""
    found = _found(given, _READING, "", '.load("path/of/the/stream")')
    options = ReadOptions(**{option.field: value for option, value in found.items()})
    _check_meaning(options, found, mode)
    return options


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of a write."""
    ours = {name: value for name, value in given.items() if name.lower() not in _OF_SPARK}
    how = '.save("path/of/the/stream"), or .start(...)'
    found = _found(ours, _WRITING, " for writing", how)
    return WriteOptions(**{option.field: value for option, value in found.items()})


def _found(
    given: Mapping[str, str], table: Sequence[_Option], purpose: str, how: str
) -> dict[_Option, Any]:
    """The values of the options that are given; one that is not known is refused."""
    known = {option.name.lower(): option for option in table}
    found = {}
    for key, value in given.items():
        option = known.get(key.lower())
        if option is None:
            raise _unknown(key, [each.name for each in table], purpose)
        found[option] = option.read(option.name, str(value))
    if known["path"] not in found:
        raise UsageError(f"no path is given; write {how}")
    return found


def _unknown(key: str, names: Sequence[str], purpose: str) -> UsageError:
    if key.lower() == "paths" and not purpose:
        return UsageError('several paths are given; read one stream at a time: .load("one path")')
    begins = key.lower() in _BEGINNINGS and "begin" in names
    hint = "; did you mean 'begin'?" if begins else did_you_mean(key, names) or "."
    return UsageError(f"there is no option {key!r}{purpose}{hint} Options: {', '.join(names)}")


def _check_meaning(options: ReadOptions, found: Iterable[_Option], mode: Mode | None) -> None:
    for option in found:
        if mode is not None and mode not in option.modes:
            (other,) = option.modes
            raise UsageError(f"option {option.name} is for {other} reads; this is a {mode} one")
        if options.kind not in option.kinds:
            raise UsageError(f"option {option.name} has no meaning for kind={options.kind}")
    names = {option.name for option in found}
    for rivals in _RIVALS:
        both = [name for name in rivals if name in names]
        if len(both) > 1:
            raise UsageError(f"options {' and '.join(both)} contradict each other; give one")
    if mode is Mode.STREAM and options.kind != RESULTS:
        raise UsageError(f"kind={options.kind} is read as a batch; use spark.read")

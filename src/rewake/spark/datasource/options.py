"""The options of a read, checked as a whole before anything is opened.

What always holds: an option that is not known, or has no meaning for what is asked, is refused with
words; none is ever ignored.  Positions count from 0, beginnings are inclusive and ends exclusive.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final, TypeAlias

from rewake.connectors.streams.begin import Place, Time, moment_in, place_in
from rewake.model.errors import UsageError
from rewake.model.near import did_you_mean
from rewake.stores.places import local_path

__all__ = [
    "CONTROL",
    "RESULTS",
    "STATE",
    "Mode",
    "Positions",
    "ReadOptions",
    "read_options",
]

RESULTS: Final = "results"
CONTROL: Final = "control"
STATE: Final = "state"

# One position for every shard, or one for each shard by its number.
Positions: TypeAlias = int | dict[int, int]

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


def _flag(name: str, value: str) -> bool:
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        raise UsageError(f"{name}={value!r}; give true or false")
    return lowered == "true"


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
    stripped = value.strip()
    if re.fullmatch(r"\d{1,18}", stripped):
        return int(stripped)
    with_shards = _shard_positions(stripped)
    if with_shards is None:
        raise UsageError(
            f'{name}={value!r}; give a position (0, 1, ...), or one for each shard: {{"0": 17}}'
        )
    return with_shards


def _shard_positions(text: str) -> dict[int, int] | None:
    try:
        given = json.loads(text)
        if not isinstance(given, dict) or not given:
            return None
        found = {int(shard): position for shard, position in given.items()}
    except ValueError:
        return None
    whole = all(type(each) is int and each >= 0 for each in found.values())
    return found if whole and min(found) >= 0 else None


def _time(name: str, value: str) -> Time:
    stripped = value.strip().removeprefix("time ").lstrip()
    if _WHOLE.fullmatch(stripped):
        return int(stripped)
    moment = moment_in(stripped)
    if moment is None:
        raise UsageError(
            f"{name}={value!r}; give a time such as 2026-03-01T12:00:00Z (UTC unless it says "
            "otherwise), or a number in the unit of the stream's time"
        )
    return moment


# --- the table of options --------------------------------------------------------------------

_EVERY_KIND: Final = frozenset({RESULTS, CONTROL, STATE})
_ROWS: Final = frozenset({RESULTS, CONTROL})
_BATCH: Final = frozenset({Mode.BATCH})
_BOTH: Final = frozenset(Mode)


@dataclass(frozen=True, slots=True)
class _Option:
    """How an option is called and read, and with what it has a meaning."""

    name: str
    field: str
    read: Callable[[str, str], Any]
    modes: frozenset[Mode] = _BOTH
    kinds: frozenset[str] = _EVERY_KIND


_TABLE: Final = {
    option.name.lower(): option
    for option in (
        _Option("path", "path", _path),
        _Option("stream", "stream", _text),
        _Option("kind", "kind", _kind),
        _Option("columns", "columns", _names),
        _Option("metadata", "metadata", _flag, kinds=frozenset({RESULTS})),
        _Option("begin", "begin", place_in, kinds=_ROWS),
        _Option("end", "end", place_in, _BATCH, _ROWS),
        _Option("asOf", "as_of", _time, _BATCH),
        _Option("asOfPosition", "as_of_position", _positions, _BATCH),
        _Option("lastRows", "last_rows", _count, _BATCH, frozenset({RESULTS})),
        _Option("maxRowsPerTrigger", "max_rows_per_trigger", _count, frozenset({Mode.STREAM})),
        _Option("maxBytesPerTrigger", "max_bytes_per_trigger", _count, frozenset({Mode.STREAM})),
        _Option("minPartitions", "min_partitions", _count, kinds=_ROWS),
        _Option("rowsPerPartition", "rows_per_partition", _count, kinds=frozenset({RESULTS})),
    )
}
_NAME_OF: Final = {option.field: option.name for option in _TABLE.values()}
assert [each.name for each in fields(ReadOptions)] == [each.field for each in _TABLE.values()]

# Two of these would each say where the stretch begins, or where it ends.
_RIVALS: Final = (
    ("begin", "last_rows"),
    ("end", "as_of", "as_of_position"),
    ("min_partitions", "rows_per_partition"),
)


def read_options(given: Mapping[str, str], mode: Mode | None = None) -> ReadOptions:
    """The options of a read; without a mode, those of any mode pass."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        option = _TABLE.get(key.lower())
        if option is None:
            raise _unknown(key)
        found[option.field] = option.read(option.name, str(value))
    if "path" not in found:
        raise UsageError('no path is given; write .load("path/of/the/stream")')
    options = ReadOptions(**found)
    _check_meaning(options, found, mode)
    return options


def _unknown(key: str) -> UsageError:
    names = [option.name for option in _TABLE.values()]
    if key.lower() == "paths":
        return UsageError('several paths are given; read one stream at a time: .load("one path")')
    hint = did_you_mean(key, names) or "."
    return UsageError(f"there is no option {key!r}{hint} Options: {', '.join(names)}")


def _check_meaning(options: ReadOptions, found: Mapping[str, Any], mode: Mode | None) -> None:
    for field in found:
        option = _TABLE[_NAME_OF[field].lower()]
        if mode is not None and mode not in option.modes:
            (other,) = option.modes
            raise UsageError(f"option {option.name} is for {other} reads; this is a {mode} one")
        if options.kind not in option.kinds:
            raise UsageError(f"option {option.name} has no meaning for kind={options.kind}")
    for rivals in _RIVALS:
        both = [_NAME_OF[name] for name in rivals if name in found]
        if len(both) > 1:
            raise UsageError(f"options {' and '.join(both)} contradict each other; give one")
    if mode is Mode.STREAM and options.kind != RESULTS:
        raise UsageError(f"kind={options.kind} is read as a batch; use spark.read")

"""Honest logs in memory, to be damaged: several writers, two stripes, trimmed, torn, empty."""

import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from fuzz.checksums import repaired
from fuzz.inputs import DELETE, OVERWRITE, REPAIR, TRUNCATE, Edit
from rewake.log.log import Log
from rewake.log.memory import Choices, MemoryStore
from rewake.log.retention import Needs, Retention, trim
from rewake.log.writing.host import DirectWriter
from rewake.log.writing.pipeline import Limits, Mode

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from log_vocabulary import sample_turn

__all__ = [
    "CLOSED_OR_KILLED",
    "LOGS",
    "LOG_ID",
    "Files",
    "damaged",
    "honest",
    "sample_turn",
    "stores_of",
]

LOG_ID: Final = 0x5EED
MAX_FILE_BYTES: Final = 1 << 16

# Per stripe: the files of the log.
Files = tuple[Mapping[str, bytes], ...]

_LIMITS: Final = Limits(segment_bytes=1200, index_interval=300)


def _write(stores: list[MemoryStore], first: int, turns: int, mode: Mode) -> DirectWriter:
    writer = DirectWriter([store.attach() for store in stores], mode=mode, limits=_LIMITS)
    for number in range(first, first + turns):
        writer.append(sample_turn(number, size=24 + number % 5 * 40))
    return writer


def _files(stores: list[MemoryStore]) -> Files:
    found = []
    for store in stores:
        names = sorted(store.names())
        found.append({name: store.read(name, 0, store.size(name)) for name in names})
    return tuple(found)


def _new(stripes: int) -> list[MemoryStore]:
    stores = [MemoryStore() for _ in range(stripes)]
    Log.create(stores, "fuzzed", log_id=LOG_ID, metadata={"schema": b"\x00\xff", "note": "seed"})
    return stores


def _three_writers() -> Files:
    stores = _new(1)
    for first in (0, 8, 16):
        _write(stores, first, 8, Mode.STABLE).close()
    return _files(stores)


def _two_stripes() -> Files:
    stores = _new(2)
    _write(stores, 0, 12, Mode.STABLE).close()
    _write(stores, 12, 6, Mode.STABLE)  # killed: never closed
    return _files(stores)


def _trimmed() -> Files:
    stores = _new(1)
    _write(stores, 0, 24, Mode.STABLE).close()
    _write(stores, 24, 3, Mode.STABLE).close()
    trim(stores, Needs(), Retention(max_bytes=0))
    return _files(stores)


def _after_power_loss() -> Files:
    stores = _new(1)
    _write(stores, 0, 4, Mode.STABLE).close()
    _write(stores, 4, 12, Mode.DELAYED)
    return _files([stores[0].crash(Choices(3))])


LOGS: Final[tuple[Callable[[], Files], ...]] = (
    _three_writers,
    _two_stripes,
    _trimmed,
    _after_power_loss,
    lambda: _files(_new(1)),
)

# The logs whose last writer closed or was killed: nothing that was complete may be missing.
CLOSED_OR_KILLED: Final = (0, 1, 2)


@cache
def honest(case: int) -> Files:
    """The files of one of the logs."""
    return LOGS[case % len(LOGS)]()


def stores_of(files: Files) -> list[MemoryStore]:
    """New stores that hold these files."""
    return [MemoryStore.holding(stripe) for stripe in files]


def damaged(files: Files, edits: list[Edit]) -> Files:
    """The log after all edits."""
    changed = [dict(stripe) for stripe in files]
    for edit in edits:
        places = [(stripe, name) for stripe in changed for name in sorted(stripe)]
        if places:
            stripe, name = places[edit.file % len(places)]
            _apply(stripe, name, edit, len(files))
    return tuple(changed)


def _apply(stripe: dict[str, bytes], name: str, edit: Edit, stripes: int) -> None:
    data = stripe[name]
    action = edit.action & ~REPAIR
    offset = edit.offset % (len(data) + 1)
    if action == DELETE:
        del stripe[name]
        return
    if action == OVERWRITE:
        data = data[:offset] + edit.data + data[offset + len(edit.data) :]
    elif action == TRUNCATE:
        data = data[:offset]
    else:
        name = _name(edit)  # a copy under another name
    if edit.action & REPAIR:
        data = repaired(name, data, log_id=LOG_ID, stripes=stripes)
    stripe[name] = data[:MAX_FILE_BYTES]


def _name(edit: Edit) -> str:
    """A name that a log's folder may hold: of a claim, a segment, an index or a draft."""
    first = int.from_bytes(edit.data[:8], "little") % 10**20
    epoch = int.from_bytes(edit.data[8:17], "little") % 10**20
    names = (
        f"epoch-{epoch:020d}",
        f"segment-{first:020d}-{epoch:020d}.log",
        f"segment-{first:020d}-{epoch:020d}.idx",
        f"segment-{first:020d}-{epoch:020d}.log.tmp",
        "floor",
    )
    return names[edit.offset % len(names)]

"""Changes to inputs that keep their structure, so that they get past the first length check.

Plain byte mutations are the fuzzer's own; these know columns, numbers and edits.  All choices come
from the generator that is given.
"""

from random import Random
from struct import pack
from typing import Any, Final

import numpy as np

from fuzz.inputs import (
    MAX_EDITS,
    Edit,
    StoredFrame,
    pack_edits,
    pack_frames,
    unpack_edits,
    unpack_frames,
)  # fmt: skip
from rewake.log.columns import Column, pack_columns, unpack_columns
from rewake.log.frame import SectionKind
from rewake.model.errors import DamagedFrame

__all__ = ["mutated"]

_NUMBERS: Final = tuple(
    sign * (base + off)
    for base in (0, 1, 2, 4, 8, 88, 255, 1 << 16, 1 << 31, 1 << 32, 1 << 40, 1 << 62, 1 << 63)
    for off in (-1, 0, 1)
    for sign in (1, -1)
)
_DTYPES: Final = ("i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "<f4", "<f8", "?")
_FLOATS: Final = (float("nan"), float("inf"), -0.0, 1e308, -1.5, 2.0**63)


def mutated(target: str, data: bytes, random: Random) -> bytes:
    """One change to an input of the target."""
    if target == "footprints" and random.random() < 0.8:
        return _mutated_footprints(data, random)
    if target == "log" and random.random() < 0.7:
        return _mutated_edits(data, random)
    if target == "columns" and random.random() < 0.5:
        return _mutated_columns(data, random)
    return _mutated_bytes(data, random)


def _number(random: Random, bits: int = 64, *, signed: bool = True) -> int:
    chosen = random.choice(_NUMBERS) if random.random() < 0.7 else random.getrandbits(bits)
    wrapped = chosen % (1 << bits)
    return wrapped - (1 << bits) if signed and wrapped >> (bits - 1) else wrapped


def _mutated_bytes(data: bytes, random: Random) -> bytes:
    buffer = bytearray(data or b"\0")
    place = random.randrange(len(buffer))
    match random.randrange(6):
        case 0:
            buffer[place] ^= 1 << random.randrange(8)
        case 1:
            buffer[place] = random.randrange(256)
        case 2:
            buffer[place : place + 8] = pack("<q", _number(random))
        case 3:
            buffer[place : place + 4] = pack("<I", _number(random, 32, signed=False))
        case 4:
            del buffer[place : place + random.randrange(1, 17)]
        case _:
            source = random.randrange(len(buffer))
            buffer[place:place] = buffer[source : source + random.randrange(1, 33)]
    return bytes(buffer)


# --- columns -------------------------------------------------------------------------------------


def _mutated_columns(payload: bytes, random: Random) -> bytes:
    try:
        columns = [column.copy() for column in unpack_columns(payload)]
    except DamagedFrame:
        return _mutated_bytes(payload, random)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        _change_columns(columns, random)
    return pack_columns(columns)


def _change_columns(columns: list[Column], random: Random) -> None:
    if not columns:
        columns.append(np.zeros(1, np.int64))
        return
    place = random.randrange(len(columns))
    column = columns[place]
    match random.randrange(12):
        case 0:
            columns[place] = column.astype(random.choice(_DTYPES))
        case 1:
            columns[place] = column[: random.randrange(column.size + 1)]
        case 2:
            columns[place] = np.concatenate([column, column[: random.randrange(3)]])
        case 3:
            del columns[place]
        case 4:
            columns.insert(place, column.copy())
        case 5:
            rows = random.randrange(max(1, column.size))
            columns[:] = [each[:rows] for each in columns]
        case 6 if column.size:
            row = random.randrange(column.size)
            columns[:] = [np.append(each, each[row : row + 1]) for each in columns]
        case _ if column.size:
            column[random.randrange(column.size)] = _value(column.dtype, random)


def _value(dtype: np.dtype[Any], random: Random) -> Any:
    if dtype.kind == "f":
        return dtype.type(random.choice(_FLOATS))
    if dtype.kind == "b":
        return bool(random.randrange(2))
    return dtype.type(_number(random, 8 * dtype.itemsize, signed=dtype.kind == "i"))


# --- footprints ----------------------------------------------------------------------------------


def _mutated_footprints(data: bytes, random: Random) -> bytes:
    case, frames = unpack_frames(data)
    if not frames or random.random() < 0.03:
        return _mutated_bytes(data, random)
    place = random.randrange(len(frames))
    chance = random.random()
    if chance < 0.75 and frames[place].sections:
        frames[place] = _changed_section(frames[place], random)
    elif chance < 0.95:
        frames[place] = _changed_field(frames[place], random)
    elif chance < 0.98:
        frames.insert(place, frames[random.randrange(len(frames))])
    else:
        case = random.randrange(256)
    return pack_frames(case, frames)


def _changed_field(frame: StoredFrame, random: Random) -> StoredFrame:
    match random.randrange(4):
        case 0:
            return frame._replace(t_end=_number(random))
        case 1:
            return frame._replace(timestamp=_number(random))
        case 2:
            near = frame.open_windows + random.choice((-1, 1))
            return frame._replace(open_windows=near % (1 << 32))
        case _:
            return frame._replace(records=_number(random, 32, signed=False))


def _changed_section(frame: StoredFrame, random: Random) -> StoredFrame:
    sections = list(frame.sections)
    place = random.randrange(len(sections))
    kind, payload = sections[place]
    if random.random() < 0.05:
        kind = random.choice(tuple(SectionKind))
    sections[place] = (kind, _mutated_columns(payload, random)[:0xFFFF])
    return frame._replace(sections=tuple(sections[:7]))


# --- edits ---------------------------------------------------------------------------------------


def _mutated_edits(data: bytes, random: Random) -> bytes:
    case, edits = unpack_edits(data)
    if len(edits) < MAX_EDITS and random.random() < 0.3:
        edits.append(_edit(random))
    elif edits:
        place = random.randrange(len(edits))
        edits[place] = _changed_edit(edits[place], random)
    return pack_edits(case, edits)


def _edit(random: Random) -> Edit:
    offset = random.choice((random.randrange(1 << 16), 8 * random.randrange(64)))
    content = pack("<q", _number(random)) * random.randrange(1, 4)
    return Edit(random.randrange(64), random.randrange(8), offset, content)


def _changed_edit(edit: Edit, random: Random) -> Edit:
    match random.randrange(4):
        case 0:
            return edit._replace(file=random.randrange(64))
        case 1:
            return edit._replace(action=random.randrange(8))
        case 2:
            return edit._replace(offset=_edit(random).offset)
        case _:
            return edit._replace(data=_mutated_bytes(edit.data, random)[:4096])

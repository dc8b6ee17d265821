"""Columns of random text, made without a Python loop over tuples.

Text of NEXMark has up to `most - 1` characters and at least 3, then blanks at its ends are cut off;
each character is a blank once in 13, else one of 26 letters.  Filling (`extra`) consists of letters
alone.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from rewake_lab.nexmark.events.draws import Draws
from rewake_lab.nexmark.events.numbers import Int64s

__all__ = ["cards", "chosen", "filling", "joined", "lengths", "text"]

Bytes = NDArray[np.uint8]
SHORTEST: Final = 3
_BLANK: Final = 32
_LETTERS: Final = 26
_BLANK_IN: Final = 13
_POOL_BYTES: Final = 1 << 20
_POOL_SEED: Final = 20


def text(draws: Draws, purpose: str, most: int) -> pa.Array:
    """Random text; the draws of `purpose` make its characters, those of its length the length."""
    wide = most - 1
    characters = _characters(draws, purpose, wide)
    drawn = SHORTEST + draws.below(f"{purpose}_length", most - SHORTEST)
    columns = np.arange(wide)
    visible = (columns < drawn[:, np.newaxis]) & (characters != _BLANK)
    first = np.argmax(visible, axis=1)
    end = np.where(visible.any(axis=1), wide - np.argmax(visible[:, ::-1], axis=1), first)
    kept = (columns >= first[:, np.newaxis]) & (columns < end[:, np.newaxis])
    return _strings(end - first, characters[kept])


def _characters(draws: Draws, purpose: str, wide: int) -> Bytes:
    """A row of letters and blanks for each event; a word of 64 bits makes four of them."""
    words = [draws.words(purpose, lane) for lane in range(-(-wide // 4))]
    quarters = np.stack(words, axis=1).astype("<u8").view("<u2")
    drawn: Bytes = _alphabet()[quarters[:, :wide]]
    return drawn


@cache
def _alphabet() -> Bytes:
    """The character for each 16-bit number: a blank once in 13, else a letter."""
    choices = _BLANK_IN * _LETTERS
    drawn = np.arange(1 << 16) * choices >> 16
    letters = ord("a") + (drawn - _LETTERS) // (_BLANK_IN - 1)
    return np.where(drawn < _LETTERS, _BLANK, letters).astype(np.uint8)


def chosen(values: list[str], which: Int64s) -> pa.Array:
    """One of some values for each event."""
    return pa.array(values, pa.string()).take(pa.array(which))


def joined(*parts: pa.Array | str) -> pa.Array:
    """The parts of each event's text, one after the other."""
    return pc.binary_join_element_wise(*parts, "")


def cards(draws: Draws) -> pa.Array:
    """Four groups of four digits, such as `0123 4567 8901 2345`."""
    groups = np.stack([draws.below("card", 10_000, lane) for lane in range(4)], axis=1)
    digits = groups[:, :, np.newaxis] // np.array([1000, 100, 10, 1]) % 10
    shown = np.full((groups.shape[0], 4, 5), _BLANK, np.uint8)
    shown[:, :, :4] = digits + ord("0")
    whole = shown.reshape(groups.shape[0], 20)[:, :19]
    return _strings(np.full(groups.shape[0], 19), np.ascontiguousarray(whole).reshape(-1))


# --- filling -------------------------------------------------------------------------------------


def filling(draws: Draws, used_bytes: Any, wanted_bytes: int) -> pa.Array:
    """Letters that bring tuples of `used_bytes` to `wanted_bytes`, give or take a fifth of them."""
    missing = np.maximum(wanted_bytes - used_bytes, 0)
    fifth = (2 * missing + 5) // 10
    sizes = missing - fifth + draws.below("extra_length", 2 * fifth)
    starts = draws.below("extra_start", _POOL_BYTES - sizes)
    ends = np.cumsum(sizes)
    letters = np.empty(int(ends[-1]) if ends.size else 0, np.uint8)
    _copy_slices(_pool(), starts, ends - sizes, sizes, letters)
    return _strings(sizes, letters)


@cache
def _pool() -> Bytes:
    """Letters of which all filling is cut; the same for all streams."""
    words = Draws(_POOL_SEED, np.arange(_POOL_BYTES, dtype=np.int64))
    return (ord("a") + words.below("extra_start", _LETTERS)).astype(np.uint8)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _copy_slices(pool: Bytes, starts: Int64s, places: Int64s, sizes: Int64s, target: Bytes) -> None:
    """Copy from the pool `sizes` bytes at `starts` to `places` of the target."""
    for index in range(sizes.size):
        # Unsigned, no index can be meant from the end, and many bytes are copied at once.
        start, place = np.uint64(starts[index]), np.uint64(places[index])
        for offset in range(np.uint64(sizes[index])):
            target[place + offset] = pool[start + offset]


# --- as Arrow ------------------------------------------------------------------------------------


def _strings(sizes: Int64s, characters: Bytes) -> pa.Array:
    """Texts of these sizes, one after the other in `characters`."""
    offsets = np.zeros(sizes.size + 1, np.int32)
    offsets[1:] = np.cumsum(sizes)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(characters)]
    return pa.Array.from_buffers(pa.string(), sizes.size, buffers)


def lengths(column: pa.Array) -> Int64s:
    """The bytes of each text of a column."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    here = offsets[column.offset : column.offset + len(column) + 1]
    return np.diff(here).astype(np.int64)

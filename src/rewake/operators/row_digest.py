"""How many rows there are and a digest of them, whatever their order: to tell sets of rows apart.

A row's hash mixes its columns one after the other; the digest is the sum of the rows' hashes, twice
with different last steps, modulo 2^64.  So digests of parts add up to that of the whole, and what
is repeated in another order, or divided differently, has the same one.  Against chance, not against
somebody who looks for two sets with one digest.

numpy alone, no loop over rows: it runs in Spark's Python workers, which import nothing heavy.

What always holds: a digest depends on the values and on which of them are null, not on slices,
chunks, or what lies under a null.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from rewake.model.errors import DamagedFrame, UsageError
from rewake.operators.columns.arrays import Array

__all__ = ["DIGEST_BYTES", "NO_ROWS", "RowDigest", "digest_of"]

_ENCODED: Final = Struct("<QQQ")
DIGEST_BYTES: Final = _ENCODED.size
_MODULUS: Final = 1 << 64
# Stretches of so many rows stay in the processor's cache.
_STRETCH: Final = 1 << 15
_SEED: Final = np.uint64(0x9E3779B97F4A7C15)
_FACTOR: Final = np.uint64(0xFF51AFD7ED558CCD)
_OTHER_FACTOR: Final = np.uint64(0xC4CEB9FE1A85EC53)
_NULL: Final = np.uint64(0xD6E8FEB86659FD93)
_HALF: Final = np.uint64(32)
_WORD: Final = 8
_FIXED: Final = (8, 16, 32, 64)


class RowDigest(NamedTuple):
    """Of a set of rows that may hold one more than once."""

    rows: int
    first: int
    second: int

    def plus(self, other: RowDigest) -> RowDigest:
        """That of both sets together."""
        return RowDigest(
            self.rows + other.rows,
            (self.first + other.first) % _MODULUS,
            (self.second + other.second) % _MODULUS,
        )

    def encode(self) -> bytes:
        """24 bytes."""
        return _ENCODED.pack(*self)

    @classmethod
    def decode(cls, data: bytes) -> RowDigest:
        """What `encode` wrote; `DamagedFrame` otherwise."""
        if len(data) != _ENCODED.size:
            raise DamagedFrame(f"a digest of rows has {len(data)} bytes")
        return cls(*_ENCODED.unpack(data))


NO_ROWS: Final = RowDigest(0, 0, 0)


def digest_of(batch: pa.RecordBatch) -> RowDigest:
    """The number of rows of a batch and their digest."""
    first = second = 0
    for start in range(0, batch.num_rows, _STRETCH):
        hashes = _rows(batch.slice(start, _STRETCH).columns)
        first += int(hashes.sum(dtype=np.uint64))
        _mix(hashes, _OTHER_FACTOR)
        second += int(hashes.sum(dtype=np.uint64))
    return RowDigest(batch.num_rows, first % _MODULUS, second % _MODULUS)


def _rows(columns: list[pa.Array]) -> Array:
    """One hash for each row of some columns."""
    hashes = np.full(len(columns[0]) if columns else 0, _SEED)
    for column in columns:
        hashes ^= _values(column)
        _mix(hashes)
    # Sums of products are linear in the values; what is mixed twice is not.
    _mix(hashes, _OTHER_FACTOR)
    _mix(hashes)
    return hashes


def _mix(hashes: Array, factor: np.uint64 = _FACTOR) -> None:
    """Spread what is in the low bits over all of them, in place and reversibly."""
    hashes *= factor
    hashes ^= hashes >> _HALF


def _values(array: pa.Array) -> Array:
    """64 bits for each value: it, if it has no more, or else a hash of it."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    found = _plain(array) if len(array) else np.zeros(0, np.uint64)
    if array.null_count:
        # Of null arrays there is no bitmap; all of their values are the same anyway.
        found = found.copy()
        found[~_bits(array, 0)] = _NULL
    return found


def _plain(array: pa.Array) -> Array:
    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), _NULL)
    if pa.types.is_boolean(kind):
        return _bits(array, 1).astype(np.uint64)
    if pa.types.is_struct(kind):
        return _rows(array.flatten()) if kind.num_fields else np.zeros(len(array), np.uint64)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        offsets = _offsets(array, large=pa.types.is_large_list(kind))
        elements = _values(array.values.slice(offsets[0], offsets[-1] - offsets[0]))
        return _sequences(elements, np.diff(offsets))
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return _texts(array, large=False)
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        return _texts(array, large=True)
    return _of_fixed_width(array)


def _of_fixed_width(array: pa.Array) -> Array:
    kind = array.type
    try:
        bits = kind.bit_width
    except ValueError:
        raise UsageError(f"a column of type {kind} cannot be told from another one") from None
    data = array.buffers()[1]
    if bits in _FIXED:
        start = array.offset * bits // 8
        return np.frombuffer(data, f"u{bits // 8}", len(array), start).astype(np.uint64)
    width = bits // 8
    values = np.frombuffer(data, np.uint8, len(array) * width, array.offset * width)
    padded = np.zeros((len(array), -(-width // _WORD) * _WORD), np.uint8)
    padded[:, :width] = values.reshape(len(array), width)
    words = padded.view(np.uint64)
    hashes = words[:, 0].copy()
    for place in range(1, words.shape[1]):
        _mix(hashes)
        hashes ^= words[:, place]
    return hashes


def _bits(array: pa.Array, buffer: int) -> Array:
    """A buffer of bits as flags: which values are valid, or true."""
    packed = np.frombuffer(array.buffers()[buffer] or b"", np.uint8)
    if not packed.size:
        return np.ones(len(array), np.bool_)
    flags = np.unpackbits(packed, count=array.offset + len(array), bitorder="little")
    return flags[array.offset :].astype(np.bool_)


def _offsets(array: pa.Array, *, large: bool) -> Array:
    kind = np.dtype(np.int64 if large else np.int32)
    start = array.offset * kind.itemsize
    return np.frombuffer(array.buffers()[1], kind, len(array) + 1, start).astype(np.int64)


def _texts(array: pa.Array, *, large: bool) -> Array:
    """Texts are sequences of words of eight bytes, the last one filled up with zeros."""
    offsets = _offsets(array, large=large)
    lengths = np.diff(offsets)
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    padded = np.concatenate([data, np.zeros(_WORD, np.uint8)])
    # A word may begin at any byte.
    at_byte = np.ndarray(data.size + 1, np.uint64, padded, strides=(1,))
    counts = -(-lengths // _WORD)
    places = _WORD * _places(counts)
    words = at_byte[np.repeat(offsets[:-1] - offsets[0], counts) + places]
    left = np.minimum(np.repeat(lengths, counts) - places, _WORD).astype(np.uint64)
    words &= ~np.uint64(0) >> ((np.uint64(_WORD) - left) << np.uint64(3))
    hashes = _sequences(words, counts)
    hashes ^= lengths.astype(np.uint64)
    return hashes


def _sequences(elements: Array, lengths: Array) -> Array:
    """One hash for each sequence of elements."""
    terms = _places(lengths).astype(np.uint64)
    _mix(terms, _OTHER_FACTOR)
    terms ^= elements
    _mix(terms)
    _mix(terms, _OTHER_FACTOR)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
    ends = np.cumsum(lengths)
    hashes: Array = sums[ends] - sums[ends - lengths]
    hashes ^= lengths.astype(np.uint64)
    _mix(hashes)
    return hashes


def _places(lengths: Array) -> Array:
    """Of each element of sequences its place in its own."""
    ends = np.cumsum(lengths)
    places: Array = np.arange(ends[-1] if ends.size else 0) - np.repeat(ends - lengths, lengths)
    return places

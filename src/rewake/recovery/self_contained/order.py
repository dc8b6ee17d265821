"""The order in which tuples and footprints go into a self-contained log: one that takes few bytes.

In the order of keys, a key differs from its neighbour by little, and so does a window's id, if the
tuples that open windows are in that order, too.  Where one key's tuples mean nothing to another's,
batches are therefore put in the order of their keys before they are processed: rows then take half
the bytes, footprints two thirds.

What always holds: tuples of one key stay in their order; a batch that is in order is not changed;
batches where the order of all tuples may matter, since there is a clock, are left as they are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from numba import njit

from rewake.model.stream_event import StreamEvent
from rewake.operators.columns.arrays import Array, Int32s, arrow_array, values_view
from rewake.operators.stateful import KeyedOperator

__all__ = ["in_key_order", "in_short_order", "integer_keys"]

_DIGIT = 11
# Keys are counted one by one if that takes no more counters than so many times the keys.
_SPARSE = 4


@njit(cache=True, nogil=True)
def _is_in_order(values):  # type: ignore[no-untyped-def]
    rises = True
    i = 1
    while rises and i < values.size:
        rises = values[i] >= values[i - 1]
        i += 1
    return rises


@njit(cache=True, nogil=True)
def _sorted_places(values, smallest, digits):  # type: ignore[no-untyped-def]
    """Places of values in ascending order, equal ones as they come: a radix sort."""
    places = np.arange(values.size).astype(np.int32)
    other = np.empty(values.size, np.int32)
    mask = np.uint64(2**_DIGIT - 1)
    for digit in range(digits):
        shift = np.uint64(digit * _DIGIT)
        starts = np.zeros(2**_DIGIT + 1, np.int64)
        for i in range(values.size):
            starts[np.int64((np.uint64(np.int64(values[i]) - smallest) >> shift) & mask) + 1] += 1
        for i in range(1, starts.size):
            starts[i] += starts[i - 1]
        for i in range(values.size):
            place = places[i]
            value = np.int64((np.uint64(np.int64(values[place]) - smallest) >> shift) & mask)
            other[starts[value]] = place
            starts[value] += 1
        places, other = other, places
    return places


@njit(cache=True, nogil=True)
def _counted_places(values, smallest, span):  # type: ignore[no-untyped-def]
    """The same by one pass, for values that lie close together: a counting sort."""
    starts = np.zeros(span + 2, np.int32)
    for i in range(values.size):
        starts[np.int64(values[i]) - smallest + 1] += 1
    for i in range(1, starts.size):
        starts[i] += starts[i - 1]
    places = np.empty(values.size, np.int32)
    for i in range(values.size):
        value = np.int64(values[i]) - smallest
        places[starts[value]] = i
        starts[value] += 1
    return places


def _order(keys: Array) -> Int32s | None:
    """Places of keys in ascending order; None when they are in it."""
    # Kernels are compiled for these two types alone.
    values = keys if keys.dtype == np.int32 else keys.astype(np.int64, copy=False)
    if _is_in_order(values):
        return None
    smallest = int(values.min())
    span = int(values.max()) - smallest
    places: Int32s
    if span <= _SPARSE * values.size:
        places = _counted_places(values, smallest, span)
    else:
        places = _sorted_places(values, smallest, -(-span.bit_length() // _DIGIT))
    return places


def _integers(keys: pa.Array) -> Array | None:
    if not pa.types.is_signed_integer(keys.type) or keys.null_count:
        return None
    return values_view(keys, f"int{keys.type.bit_width}")


def in_key_order(operator: KeyedOperator, event: StreamEvent) -> StreamEvent:
    """The stream event with its tuples in the order of their keys, where no more is changed by it.

    That is where keys are single integers and windows have no clock.
    """
    if operator.short_order is None or not operator.any_order:
        return event
    place = event.batch.schema.get_field_index(operator.short_order)
    keys = None if place < 0 else _integers(event.batch.column(place))
    places = None if keys is None else _order(keys)
    if places is None:
        return event
    return replace(event, batch=event.batch.take(arrow_array(places, pa.int32())))


def in_short_order(operator: KeyedOperator, slots: Int32s) -> Int32s:
    """Parts in the order in which their footprints take few bytes: by key, or by opening."""
    keys = integer_keys(operator, slots)
    places = _order(operator.ids_of(slots) if keys is None else keys)
    return slots if places is None else slots[places]


def integer_keys(operator: KeyedOperator, slots: Int32s) -> Array | None:
    """The keys of parts, where they are single integers."""
    return None if operator.short_order is None else _integers(operator.keys_in(slots)[0])

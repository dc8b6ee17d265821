"""The tuples of `rewake.connectors.item_stream` for programs without Rewake: numpy alone."""

from typing import Any

import numpy as np

_FIRST_US = 1_700_000_000_000_000
_ODD = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR, _SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_10, _27, _30, _31, _32 = (np.uint64(each) for each in (10, 27, 30, 31, 32))


def columns(seed: int, ids: int, interval_us: int, start: int, stop: int) -> tuple[Any, Any, Any]:
    """Items, prices, and times in microseconds, of the positions from `start` to `stop - 1`."""
    positions = np.arange(start, stop, dtype=np.uint64)
    chance = _scrambled(positions * _ODD + _scrambled(np.array([seed], np.uint64)))
    more = _scrambled(chance)
    items = ((more >> _32) * np.uint64(ids)) >> _32
    prices = (((chance >> _32) * np.uint64(1000)) >> _32) + np.uint64(1)
    times = positions * np.uint64(interval_us) + more % _10
    return items.astype(np.int64), prices.astype(np.int64), times.astype(np.int64) + _FIRST_US


def _scrambled(value: Any) -> Any:
    """SplitMix64; arrays of unsigned numbers overflow silently, which is meant."""
    value = (value ^ (value >> _30)) * _FIRST_FACTOR
    value = (value ^ (value >> _27)) * _SECOND_FACTOR
    return value ^ (value >> _31)

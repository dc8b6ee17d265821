"""The streams of `rewake bench recover-within`: the item stream with keys that are not all alike.

uniform   every item is as likely as any other
zipf      the k-th item is bought in proportion to 1/k: few windows close all the time, and most
          stay open for long
bursty    in the first quarter of a period each purchase is of the next item in turn, so that very
          many windows open within a moment and grow old together; then a hundredth of the items
          is bought at random

As in the item stream, a tuple is a function of seed and position alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewake.connectors.item_stream import ItemStream
from rewake.drill.queries import HIGHEST_KEPT, ItemDrill
from rewake.model.errors import UsageError

__all__ = ["SHAPES", "ShapedDrill", "ShapedStream"]

SHAPES = ("uniform", "zipf", "bursty")
# Tuples from the start of a burst to the start of the next.
_PERIOD = 400_000
_BURST = _PERIOD // 4


@dataclass(frozen=True, slots=True)
class ShapedStream(ItemStream):
    """Purchases of `items` items whose keys have a shape."""

    shape: str = "uniform"

    def __post_init__(self) -> None:
        ItemStream.__post_init__(self)
        if self.shape not in SHAPES:
            raise UsageError(f"keys cannot be {self.shape!r}; choose one of {', '.join(SHAPES)}")

    def _columns(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        items, prices, times = ItemStream._columns(self, start, stop)
        if self.shape == "zipf":
            items = _zipf(_chances(self.seed, start, stop), self.items)
        elif self.shape == "bursty":
            items = _bursty(items, start, self.items)
        return items, prices, times


def _chances(seed: int, start: int, stop: int) -> NDArray[np.float64]:
    """Numbers from 0 to below 1, one for each position (SplitMix64)."""
    odd = np.uint64(0x9E3779B97F4A7C15)
    value = (np.arange(start, stop, dtype=np.uint64) + np.uint64(seed % 2**32 << 32)) * odd
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((value ^ (value >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


def _zipf(chances: NDArray[np.float64], items: int) -> NDArray[np.int32]:
    """Ranks whose logarithms are spread evenly: the k-th in proportion to log(1 + 1/k)."""
    ranks = np.exp(chances * np.log(items + 1.0)).astype(np.int64)
    return np.asarray(np.clip(ranks - 1, 0, items - 1), np.int32)


def _bursty(even: NDArray[np.int32], start: int, items: int) -> NDArray[np.int32]:
    positions = np.arange(start, start + even.size)
    few = max(items // 100, 1)
    cycle, place = positions // _PERIOD, positions % _PERIOD
    in_turn = few + (cycle * _BURST + place) % max(items - few, 1)
    return np.where(place < _BURST, np.minimum(in_turn, items - 1), even % few).astype(np.int32)


@dataclass(frozen=True, slots=True)
class ShapedDrill(ItemDrill):
    """The drill of the item stream, with keys of a shape."""

    shape: str = "uniform"

    def stream(self) -> ShapedStream:
        """The tuples that go in."""
        return ShapedStream(self.seed, self.items, shape=self.shape)

    def kept(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Keys and positions of the tuples that pass the filter, in the order of the stream."""
        pieces = [
            (items[chosen], ItemStream.positions_at(times[chosen]))
            for items, prices, times in self.pieces(0, 1)
            for chosen in [prices <= HIGHEST_KEPT]
        ]
        keys, positions = (np.concatenate(column) for column in zip(*pieces, strict=True))
        return keys, positions

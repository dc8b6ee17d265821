"""Randomness as a function of the seed, the event's number and the column.

A column is drawn without drawing any other, of any events in any order.  Only integer arithmetic
and correctly rounded products are used, so every machine draws the same.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rewake_lab.nexmark.events.numbers import Int64s

__all__ = ["Draws", "Words"]

Words = NDArray[np.uint64]

_ODD: Final = 0x9E3779B97F4A7C15
_FIRST_FACTOR, _SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_8, _27, _30, _31, _32 = (np.uint64(each) for each in (8, 27, 30, 31, 32))
_BYTE: Final = np.uint64(255)

# Each has its own lanes of 64 draws.  A new one goes to the end: streams of earlier runs must not
# change.
_PURPOSES: Final = (
    "name", "email_user", "email_host", "card", "city", "state", "extra_length", "extra_start",
    "item", "item_length", "description", "description_length", "initialBid", "reserve", "expires",
    "seller_hot", "seller", "category", "auction_hot", "auction", "bidder_hot", "bidder", "price",
    "email_user_length", "email_host_length",
)  # fmt: skip
_LANE: Final = {purpose: 64 * place for place, purpose in enumerate(_PURPOSES)}


class Draws:
    """The draws of some events."""

    def __init__(self, seed: int, numbers: Int64s) -> None:
        key = _scrambled(np.array([seed % 2**64], np.uint64))
        self._roots = _scrambled(numbers.astype(np.uint64) * np.uint64(_ODD) + key)

    def words(self, purpose: str, lane: int = 0) -> Words:
        """64 random bits for each event."""
        step = (_LANE[purpose] + lane + 1) * _ODD % 2**64
        return _scrambled(self._roots + np.uint64(step))

    def below(self, purpose: str, limit: Any, lane: int = 0) -> Int64s:
        """Evenly from 0 to `limit - 1`, which is below 2**32: a number, or one for each event."""
        limits = np.asarray(limit).astype(np.uint64)
        return (((self.words(purpose, lane) >> _32) * limits) >> _32).astype(np.int64)

    def hot(self, purpose: str, ratio: int) -> NDArray[np.bool_]:
        """True with probability 1 - 1/ratio."""
        return self.below(purpose, ratio) > 0

    def prices(self, purpose: str) -> Int64s:
        """round(10**(6u) * 100), u evenly from [0, 1): from 1 to 1,000,000 dollars, in cents."""
        word = self.words(purpose)
        value = np.full(word.size, 100.0)
        for powers in _powers_of_ten():
            value *= powers[(word & _BYTE).astype(np.intp)]
            word = word >> _8
        return np.floor(value + 0.5).astype(np.int64)


def _scrambled(values: Words) -> Words:
    """SplitMix64's finalizer: neighbouring values become unrelated ones."""
    values = (values ^ (values >> _30)) * _FIRST_FACTOR
    values = (values ^ (values >> _27)) * _SECOND_FACTOR
    return values ^ (values >> _31)


@cache
def _powers_of_ten() -> list[NDArray[np.float64]]:
    """10**(6u) for the four bytes of a 32-bit u, lowest byte first; their product is the power.

    Powers of floats differ between machines in their last bit, products do not.
    """
    with localcontext(prec=25):
        return [
            np.array([float(Decimal(10) ** (6 * Decimal(byte) / unit)) for byte in range(256)])
            for unit in (2**32, 2**24, 2**16, 2**8)
        ]

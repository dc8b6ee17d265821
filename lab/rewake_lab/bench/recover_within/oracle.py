"""The fewest CHECKs that could have kept a promise, by one who knows the future.

The oracle knows when every window opens and closes and when the crash comes, and must keep the same
limit as the controller at every moment until then: no footprint of an open window may be older than
`stretch` positions, which is what the controller's own rates allow within the target.  So a window
that is open from position o to `end`, the sooner of its close and the end of the run, needs a
footprint at least every `stretch` positions, of which the OPEN is the first:

    max(0, ceil((end - o) / stretch) - 1)     CHECKs

What always holds: nothing here knows the engine; it sees keys and positions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Lives", "fewest_checks", "window_lives"]

Numbers = NDArray[Any]


class Lives(NamedTuple):
    """Windows: the positions at which they open, and where they close or the run ends."""

    opened: Numbers
    ended: Numbers


def window_lives(keys: Numbers, positions: Numbers, size: int, end: int) -> Lives:
    """The tumbling windows of `size` tuples per key; `positions` rise."""
    order = np.argsort(keys, kind="stable")
    keys, positions = keys[order], positions[order]
    starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])[: keys.size]
    rank = np.arange(keys.size) - np.repeat(starts, np.diff(np.r_[starts, keys.size]))
    opening = np.flatnonzero(rank % size == 0)
    last = opening + size - 1
    whole = last < keys.size
    # The tuple that closes a window is one of the same key.
    whole[whole] = keys[last[whole]] == keys[opening[whole]]
    ended = np.full(opening.size, end, np.int64)
    ended[whole] = positions[last[whole]]
    return Lives(positions[opening], ended)


def fewest_checks(lives: Lives, stretch: float) -> int:
    """How many CHECKs are needed at least so that no footprint gets older than `stretch`."""
    needed = np.ceil((lives.ended - lives.opened) / stretch) - 1
    return int(np.maximum(needed, 0).sum())

"""How much longer than expected a part of a recovery may take: learnt from what was seen.

A prediction is about the mean, a promise about the worst.  What lies between is no constant: it is
how far the predictions made here, for this part, have been off.  So a margin is a quantile of
`took / expected` over the latest recoveries of a node.  Until there are any, it stands on what
rehearsals on this machine showed, and on a caution that the first recoveries replace.

What always holds: a margin is at least `LEAST`, and one recovery that was held up cannot make it
more than `_MOST`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from rewake.model.errors import UsageError

__all__ = ["LEAST", "Margin"]

# However well predictions did: the next recovery is another one.
LEAST: Final = 1.15
_MOST: Final = 4.0
# So many are remembered, and this share of them is covered; fewer than a hundred: all of them.
_LATEST: Final = 64
_COVERED: Final = 0.99


class Margin:
    """How many times what was expected; begins with what nobody has seen yet, as one of them."""

    def __init__(self, unseen: float) -> None:
        self._remember([unseen])

    def _remember(self, ratios: Iterable[float]) -> None:
        self._seen = deque((min(max(each, 0.0), _MOST) for each in ratios), maxlen=_LATEST)
        covered = np.quantile(self._seen, _COVERED, method="higher")
        # What it will hardly take more than, as a multiple of what is expected.  It is asked for
        # in every turn, and changes with a recovery.
        self.factor = max(float(covered), LEAST)

    def observe(self, expected: float, took: float) -> None:
        """A recovery's part was expected to take so long, and took so long."""
        assert expected > 0, f"nothing takes {expected}"
        self._remember([*self._seen, took / expected])

    def kept(self) -> list[float]:
        """All that was seen, as numbers."""
        return list(self._seen)

    def go_on(self, kept: Sequence[float]) -> None:
        """From what `kept` gave."""
        ratios = [float(each) for each in kept]
        if not ratios or not all(0 <= each < math.inf for each in ratios):
            raise UsageError(f"this is no margin: {list(kept)[:8]}")
        self._remember(ratios)

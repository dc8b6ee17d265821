"""What a drill says about the results of a query; it knows nothing of the engine."""

from __future__ import annotations

from typing import NamedTuple


class Verdict(NamedTuple):
    """What is wrong with a sequence of results; all zero when it is what it should be."""

    expected: int
    lost: int
    duplicated: int
    reordered: int
    wrong: int

    @property
    def right(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.duplicated or self.reordered or self.wrong)

"""Whether a node keeps up with its input.

A node at its limit gains by letting results gather for a sync; whoever reads them waits in a long
queue anyway.  One that keeps up, and has more to do only because it was held up for a moment, must
not let results wait on top of that.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Load"]

# At half of what it can do, a node that was held up has caught up again after as long a time; one
# that has had work without a break for longer than this is at its limit.
_REMEMBERED_MS: Final = 100.0


class Load:
    """When a node last had nothing to do.  A new node has not shown yet that it keeps up."""

    def __init__(self) -> None:
        self._rested_at_ms = float("-inf")

    def rested(self, now_ms: float) -> None:
        """There was nothing to do."""
        self._rested_at_ms = now_ms

    def keeps_up(self, now_ms: float) -> bool:
        """Whether it had nothing to do just now or a moment ago."""
        return now_ms - self._rested_at_ms <= _REMEMBERED_MS

"""When somebody must be told of late tuples.  Light: Spark's Python workers import it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["DIVERTED", "DROPPED", "KEPT", "PERCENT", "LateWatch"]

# What becomes of late tuples, as figures of a node: see `rewake.node.lateness`.
DROPPED: Final = "late_dropped"
DIVERTED: Final = "late_diverted"
KEPT: Final = "late_kept"
# Of this life of a node.
PERCENT: Final = "late_percent"
# Of a hundred tuples that came: from here on late ones are many.
_MANY_PERCENT: Final = 1.0


class LateWatch:
    """Says when late tuples are dropped for the first time, and when they have become many.

    Many are `_MANY_PERCENT` of what came; from then on it is said again at every power of ten.
    """

    def __init__(self) -> None:
        # By who drops: how many digits the number had when it was last said; 0: the first time.
        self._said: dict[str, int] = {}

    def heard(self, who: str, figures: Mapping[str, Any]) -> str | None:
        """What a node says of itself; what is to be passed on of that, if anything.

        Of one that does not say what share they are, any number is taken for many.
        """
        dropped, percent = figures.get(DROPPED), figures.get(PERCENT)
        if not isinstance(dropped, int) or dropped <= 0:
            return None
        share = f", {percent:.3g}% of what came since it was started" if percent else ""
        many = not isinstance(percent, float) or percent >= _MANY_PERCENT
        digits = len(str(dropped)) if many else 0
        if who in self._said and digits <= self._said[who]:
            return None
        self._said[who] = digits
        return (
            f"{who}: {dropped:,} late tuple{'s' if dropped > 1 else ''} dropped so far{share}: "
            "their windows had closed.  Say by how much times are out of order (slack=), or have "
            "them on an output of their own (route_late=True)"
        )

"""How long a crash may cost, where users say it and where they do not.

What always holds: who says nothing gets a promise, so that no replay is without bounds; only
`recover_within=None` does without one.  An approach that somebody chose stays what it is: what
nobody has said is neither added to CHECKs of its own, nor held against one that cannot promise.
"""

from __future__ import annotations

from typing import Final

from rewake.model.errors import UsageError
from rewake.recovery.approach import Approach, approaches, checked_approach, default_approach

__all__ = ["AS_QUERY", "RECOVER_WITHIN", "Unsaid", "approach_of_query", "approach_of_step"]


class Unsaid(str):
    """What holds unless somebody says otherwise; it gives way to whatever somebody has said."""

    __slots__ = ()


RECOVER_WITHIN: Final = Unsaid("10s")
AS_QUERY: Final = Unsaid("as the query")

_SETTING: Final = "recover_within"


def approach_of_query(
    approach: Approach | None, recover_within: str | None, checkpoint_budget: str | float
) -> Approach:
    """The approach of steps that do not choose."""
    chosen = checked_approach(approach) or default_approach()
    if isinstance(recover_within, Unsaid) and not _open(chosen):
        return chosen
    return _promising(chosen, recover_within, checkpoint_budget)


def approach_of_step(
    of_query: Approach,
    approach: Approach | None,
    recover_within: str | None,
    checkpoint_budget: str | float,
) -> Approach | None:
    """The approach of a step; None: that of its query."""
    chosen = checked_approach(approach)
    if isinstance(recover_within, Unsaid):
        if chosen is None or not _open(chosen):
            return chosen
        # It promises what the query does, or what everybody is promised.
        if of_query.foretells:
            return of_query
        return _promising(chosen, RECOVER_WITHIN, checkpoint_budget)
    if recover_within is not None:
        return _promising(chosen or default_approach(), recover_within, checkpoint_budget)
    return chosen or (default_approach() if _SETTING in of_query.settings() else None)


def _open(approach: Approach) -> bool:
    """Whether it could promise something and says nothing of CHECKs."""
    return approach.foretells and not approach.settings()


def _promising(
    approach: Approach, recover_within: str | None, checkpoint_budget: str | float
) -> Approach:
    if recover_within is None:
        return approach
    if not approach.foretells:
        able = [name for name, each in approaches().items() if each.foretells]
        raise UsageError(
            f"{_SETTING}={str(recover_within)!r} cannot be promised under approach "
            f"{approach.name!r}: only {' and '.join(map(repr, able))} knows what a crash would "
            "cost; leave one of the two out"
        )
    said = {_SETTING: str(recover_within), "checkpoint_budget": checkpoint_budget}
    return type(approach).from_settings(**approach.settings(), **said)

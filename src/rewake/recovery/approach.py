"""The one interface of recovery approaches, and the registry through which others join.

An approach drives one fragment's operator turn by turn and knows how to rebuild it.  A node never
asks which approach it hosts: it goes by the answers (`rewake.recovery.answers`), drives what
`build` gives (`rewake.recovery.driven`), and after a crash gives the log to `build` and input from
`position` on.

Adding an approach: a frozen dataclass, derived from `Approach`, with the fields that a user may
set, and one call of `register`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self

from rewake.log.frame import Frame
from rewake.model.errors import UsageError
from rewake.model.given import shown
from rewake.operators.classes import OperatorClass
from rewake.operators.stateful import Emissions, Outcome, StatefulOperator
from rewake.recovery.answers import (
    Guarantee,
    Keeper,
    Kept,
    Release,
    Survives,
    guarantee_behind,
)
from rewake.recovery.bookmark import Bookmark
from rewake.recovery.driven import NOTHING, Recovery, Standby, Turn

__all__ = [
    "LATE_OUTPUT",
    "NOTHING",
    "RESULTS_OUTPUT",
    "Approach",
    "Emissions",
    "Emit",
    "Guarantee",
    "Keeper",
    "Kept",
    "NewOperator",
    "Recovery",
    "Release",
    "Standby",
    "Survives",
    "Turn",
    "approach_named",
    "approach_of",
    "approaches",
    "by_port",
    "changed_settings",
    "checked_approach",
    "default_approach",
    "guarantee_behind",
    "register",
    "rows_in",
]

# How an operator's results become the fragment's outputs: further steps, then a shuffle.
Emit = Callable[[Outcome], Emissions]
# A new operator of a fragment, as often as it is called.
NewOperator = Callable[[], StatefulOperator]

RESULTS_OUTPUT, LATE_OUTPUT = 0, 1


class Approach(ABC):
    """A way to recover, with its settings; a value that is part of a query."""

    # The name under which it is registered, in plans and on the command line.
    name: ClassVar[str]
    # Who keeps what a turn records.
    keeper: ClassVar[Keeper]
    # Where output is retained until nobody can ask for it again.
    retains: ClassVar[Kept]
    # When output leaves.
    release: ClassVar[Release] = Release.WHEN_KEPT
    # In how many processes, on as many servers, a node runs: one takes turns, the others stand by.
    places: ClassVar[int] = 1
    # Whether it knows beforehand what a crash would cost, so that a time can be promised.
    foretells: ClassVar[bool] = False
    # Whether input is processed again after a crash whose results are kept.
    repeats_turns: ClassVar[bool] = False

    @classmethod
    def from_settings(cls, **settings: Any) -> Self:
        """What has these settings; raises a TypeError where there is no such setting."""
        return cls(**settings)

    def settings(self) -> dict[str, Any]:
        """The settings as JSON values; `from_settings(**settings)` is equal to this."""
        return changed_settings(self)

    @abstractmethod
    def build(self, operator: StatefulOperator, emit: Emit, frames: Iterable[Frame]) -> Recovery:
        """Rebuild from a log given newest frame first (empty for a new one); `operator` is new."""

    def stand_by(self, make: NewOperator, emit: Emit) -> Standby:  # noqa: ARG002
        """What one of the other places begins with; only asked of those that have several.

        `make` gives new operators, for who computes along.
        """
        raise AssertionError(f"approach {self.name!r} has one place")

    def resume(self, alive: Recovery, frames: Iterable[Frame]) -> Recovery:  # noqa: ARG002
        """Go on with what a place has kept up that stood by, and with its records, newest first."""
        raise AssertionError(f"under approach {self.name!r} nobody computes along")

    def go_back(
        self,
        operator: StatefulOperator,  # noqa: ARG002
        emit: Emit,  # noqa: ARG002
        bookmark: Bookmark,
    ) -> Recovery:
        """Go on from what the coordinator has kept of the node; `operator` is new."""
        raise AssertionError(f"approach {self.name!r} leaves no bookmarks, and {bookmark} is one")

    def late_tuples_in(self, frame: Frame) -> int:  # noqa: ARG002
        """How many tuples had come too late when this frame was written."""
        return 0

    # --- what follows from the answers -------------------------------------------------------

    @property
    def caution(self) -> str:
        """What a crash of a fragment with state may cost, and what to do; mostly nothing."""
        return ""

    @property
    def survives(self) -> Survives:
        """What may end without loss: a log outlasts all processes, memory only one of several."""
        return _SURVIVES[self.keeper]

    def guarantee(
        self, operator_class: OperatorClass, inputs: Guarantee = Guarantee.PRECISE
    ) -> Guarantee:
        """What holds for the output of a fragment of this class whose inputs have that guarantee.

        What nobody keeps is lost.  Where output waits until its record is kept, with the order in
        which inputs met, no crash shows.  Where it does not wait, what was sent is made again: the
        same under the same positions, so that whoever has it drops it, unless chance has a part in
        it (Hwang Table 3.2; the price of precise output of Table 3.4 is paid by positions).  An
        operator that begins empty must come to the same from there, too.
        """
        if self.keeper is Keeper.NOBODY:
            own = Guarantee.GAP
        elif self.release is Release.AT_ONCE and operator_class < _MADE_AGAIN.get(self.keeper, 0):
            own = Guarantee.DIVERGENT
        else:
            own = Guarantee.PRECISE
        return guarantee_behind(own, operator_class, inputs)


# What an operator must be so that its output can be made again, by who keeps what of it.
_MADE_AGAIN: Final = {
    Keeper.STANDBY: OperatorClass.DETERMINISTIC,
    Keeper.COORDINATOR: OperatorClass.CONVERGENT_CAPABLE,
}
_SURVIVES: Final = {
    Keeper.LOG: Survives.ALL,
    Keeper.STANDBY: Survives.ONE_PLACE,
    Keeper.COORDINATOR: Survives.ALL,
    Keeper.NOBODY: Survives.NOTHING,
}
# What nodes can carry out: where output is retained, when it leaves, the least number of places.
_CARRIED_OUT: Final = {
    Keeper.LOG: (Kept.IN_LOG, (Release.WHEN_KEPT,), 1),
    Keeper.STANDBY: (Kept.IN_QUEUE, (Release.WHEN_KEPT, Release.AT_ONCE), 2),
    Keeper.COORDINATOR: (Kept.IN_QUEUE, (Release.AT_ONCE,), 1),
    Keeper.NOBODY: (Kept.NOWHERE, (Release.AT_ONCE,), 1),
}


# --- the registry ----------------------------------------------------------------------------

_REGISTRY: dict[str, type[Approach]] = {}


def register(approach: type[Approach]) -> type[Approach]:
    """Make an approach known by its name; usable as a class decorator.

    The first that can promise a time is what those get who do not choose.
    """
    retains, releases, least_places = _CARRIED_OUT[approach.keeper]
    enough = approach.places >= least_places and (least_places > 1 or approach.places == 1)
    # A property is a user's choice among those that can be.
    chosen = isinstance(approach.release, property)
    if (
        approach.retains is not retains
        or not (chosen or approach.release in releases)
        or not enough
    ):
        leaves = " or ".join(each.value for each in releases)
        raise UsageError(
            f"approach {approach.name!r} cannot be carried out: what {approach.keeper.value} keeps "
            f"is retained {retains.value}, leaves {leaves}, and takes "
            f"{'one place' if least_places == 1 else f'{least_places} places or more'}, not "
            f"{approach.retains.value}, {approach.release.value}, {approach.places}"
        )
    known = _REGISTRY.setdefault(approach.name, approach)
    if known is not approach:
        raise UsageError(f"there is already an approach named {approach.name!r}: {known}")
    return approach


def unregister(approach: type[Approach]) -> None:
    """Forget an approach that was registered for a while."""
    del _REGISTRY[approach.name]


def approaches() -> Mapping[str, type[Approach]]:
    """All approaches that are known now, by name."""
    return MappingProxyType(_REGISTRY)


def approach_named(name: str, **settings: Any) -> Approach:
    """The approach of that name with these settings."""
    if name not in _REGISTRY:
        raise UsageError(
            f"there is no recovery approach {name!r}; choose one of {', '.join(sorted(_REGISTRY))}"
        )
    try:
        return _REGISTRY[name].from_settings(**settings)
    except TypeError as error:
        raise UsageError(f"approach {name!r} has no such setting: {error}") from error


def approach_of(given: Approach | str) -> Approach:
    """An approach that may be given by its name, as on the command line."""
    return approach_named(given) if isinstance(given, str) else given


def checked_approach(approach: Approach | None) -> Approach | None:
    """An approach that a user has given, if it is one."""
    given: object = approach  # by callers whose types nobody checks
    if given is None or isinstance(given, Approach):
        return given
    named = isinstance(given, str)
    classes = ", ".join(f"{each.__name__}()" for each in _REGISTRY.values())
    raise UsageError(
        f"approach={shown(given)} is no recovery approach; choose one of {classes}"
        + ("; names are for the command line, a query takes the value itself" if named else "")
    )


def default_approach(**settings: Any) -> Approach:
    """What those get who do not choose."""
    return next(each for each in _REGISTRY.values() if each.foretells).from_settings(**settings)


# --- what approaches share -------------------------------------------------------------------


def changed_settings(approach: Any) -> dict[str, Any]:
    """The fields of an approach that are not at their default."""
    values = {each.name: getattr(approach, each.name) for each in fields(approach)}
    defaults = {each.name: each.default for each in fields(approach) if each.default is not MISSING}
    return {name: value for name, value in values.items() if value != defaults.get(name, MISSING)}


def by_port(outcome: Outcome) -> Emissions:
    """Results on output 0 and late tuples on output 1, as the operator gives them."""
    ports = ((RESULTS_OUTPUT, outcome.results), (LATE_OUTPUT, outcome.late))
    return [(output, batch) for output, batch in ports if batch is not None]


def rows_in(outputs: Emissions) -> int:
    """How many tuples, over all outputs: a log's positions count these."""
    return sum(int(batch.num_rows) for _, batch in outputs)

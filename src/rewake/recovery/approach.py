"""The one interface of recovery approaches, and the registry through which others join.

An approach drives one fragment's operator turn by turn and knows how to rebuild it.  A node never
asks which approach it hosts: it hands over stream events, appends the records it gets back before
it forwards anything, and after a crash gives the log to `build` and input from `position` on.

Adding an approach: a frozen dataclass with the fields that a user may set, the methods of
`Approach`, and one call of `register`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from rewake.log.frame import Frame, SectionKind, TurnRecord
from rewake.model.errors import UsageError
from rewake.model.stream_event import StreamEvent
from rewake.operators.stateful import Emissions, Outcome, StatefulOperator
from rewake.recovery.promises.rates import RecoveryRates

__all__ = [
    "LATE_OUTPUT",
    "NOTHING",
    "RESULTS_OUTPUT",
    "Approach",
    "Cautioning",
    "Emissions",
    "Emit",
    "Foretelling",
    "Guarantee",
    "Keeper",
    "Kept",
    "Recovery",
    "Turn",
    "approach_named",
    "approach_of",
    "approaches",
    "by_port",
    "changed_settings",
    "checked_approach",
    "chosen_approach",
    "default_approach",
    "guarantee_of",
    "register",
    "rows_in",
]

# How an operator's results become the fragment's outputs: further steps, then a shuffle.
Emit = Callable[[Outcome], Emissions]

RESULTS_OUTPUT, LATE_OUTPUT = 0, 1


class Keeper(Enum):
    """Who keeps what a turn records, so that it survives a crash."""

    LOG = "the node's log"
    NOBODY = "nobody"


class Kept(Enum):
    """Where output that has left memory can be had again."""

    IN_LOG = "in the log"
    UPSTREAM = "upstream"
    NOWHERE = "nowhere"


class Guarantee(IntEnum):
    """What holds for output after a crash, from the least to the most (Hwang 3.2.1)."""

    GAP = 0
    DIVERGENT = 1
    CONVERGENT = 2
    REPEATING = 3
    PRECISE = 4

    @property
    def words(self) -> str:
        """For people."""
        return self.name.lower()


class Turn(NamedTuple):
    """What a turn yields: the record to append (None: nothing to persist), and what to forward."""

    record: TurnRecord | None
    outputs: Emissions = ()
    checks: int = 0

    @property
    def check_bytes(self) -> int:
        """What its CHECKs take in the log."""
        if self.record is None or not self.checks:
            return 0
        checks = [each for each in self.record.sections if each.kind is SectionKind.CHECKS]
        return sum(memoryview(each.payload).nbytes for each in checks)

    def on(self, output: int) -> pa.RecordBatch | None:
        """What goes to an output, or None."""
        return next((batch for number, batch in self.outputs if number == output), None)


NOTHING = Turn(None)


class Recovery(Protocol):
    """One fragment under an approach, driven turn by turn."""

    operator: StatefulOperator
    # The next input position.
    position: int

    @property
    def recovering(self) -> bool:
        """Whether the next input is a replay of turns that the log has already."""

    @property
    def acknowledged(self) -> int:
        """Input up to here (inclusive) is not needed for recovery any more."""

    @property
    def frames_needed(self) -> int:
        """How many of the newest frames recovery would read; older ones may be trimmed."""

    def turn(self, event: StreamEvent, now_ms: float = 0.0) -> Turn:
        """Process the stream event at `position`, or replay it if the log has its effects."""

    def bare_record(self) -> TurnRecord:
        """A record that says no more than that input up to `position` has been consumed.

        Asked for between turns, when nothing is being replayed, and then appended.
        """

    def progress(self) -> dict[str, float]:
        """Figures for people: open windows, extent, tuples to replay."""

    def check_invariants(self) -> None:
        """What always holds between turns."""


@runtime_checkable
class Foretelling(Protocol):
    """What a `Recovery` offers besides that knows beforehand what a crash would cost."""

    @property
    def rates(self) -> RecoveryRates | None:
        """What the parts of a recovery cost, where something was promised; the host keeps it."""

    @property
    def advice(self) -> str:
        """Why a promise cannot be kept, and what to do; mostly nothing."""

    @property
    def replay_through(self) -> int:
        """The last position whose effects the log has: tc."""


@runtime_checkable
class Cautioning(Protocol):
    """What an `Approach` says besides whose settings leave open what users should know."""

    @property
    def caution(self) -> str:
        """What a crash of a fragment with state may cost, and what to do; mostly nothing."""


class Approach(Protocol):
    """A way to recover, with its settings; a value that is part of a query."""

    # The name under which it is registered, in plans and on the command line.
    name: ClassVar[str]
    # Who keeps what a turn records.  Output leaves when it is kept, so that no crash shows.
    keeper: ClassVar[Keeper]
    # Whether it knows beforehand what a crash would cost, so that a time can be promised.
    foretells: ClassVar[bool]
    # Whether input is processed again after a crash whose results are kept.
    repeats_turns: ClassVar[bool]
    # Whether it works when a fragment's output comes back to it.
    allows_cycles: ClassVar[bool]

    @classmethod
    def from_settings(cls, **settings: Any) -> Approach:
        """What has these settings; raises a TypeError where there is no such setting."""

    def settings(self) -> dict[str, Any]:
        """The settings as JSON values; `from_settings(**settings)` is equal to this."""

    def build(self, operator: StatefulOperator, emit: Emit, frames: Iterable[Frame]) -> Recovery:
        """Rebuild from a log given newest frame first (empty for a new one); `operator` is new."""

    def late_tuples_in(self, frame: Frame) -> int:
        """How many tuples had come too late when this frame was written."""


# --- the registry ----------------------------------------------------------------------------

_REGISTRY: dict[str, type[Approach]] = {}


def register(approach: type[Approach]) -> type[Approach]:
    """Make an approach known by its name; usable as a class decorator.

    The first that can promise a time is what those get who do not choose.
    """
    known = _REGISTRY.setdefault(approach.name, approach)
    if known is not approach:
        raise UsageError(f"there is already an approach named {approach.name!r}: {known}")
    return approach


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
    if approach is None or (hasattr(given, "build") and not isinstance(given, type)):
        return approach
    classes = ", ".join(f"{each.__name__}()" for each in _REGISTRY.values())
    raise UsageError(f"approach={given!r} is no recovery approach; choose one of {classes}")


def default_approach(**settings: Any) -> Approach:
    """What those get who do not choose."""
    return next(each for each in _REGISTRY.values() if each.foretells).from_settings(**settings)


def guarantee_of(approach: Approach) -> Guarantee:
    """What holds for the output of a fragment with state under this approach.

    It follows from who keeps a turn's record: output is held until it is kept, so whoever keeps it
    makes the output precise; what nobody keeps is lost.
    """
    return Guarantee.GAP if approach.keeper is Keeper.NOBODY else Guarantee.PRECISE


def chosen_approach(
    approach: Approach | None, recover_within: str | None, checkpoint_budget: str | float
) -> Approach | None:
    """The approach a user means who may have said how long a crash may cost; None if neither."""
    named = checked_approach(approach)
    if recover_within is None:
        return named
    settings = {} if named is None else named.settings()
    if named is not None and not named.foretells:
        able = [name for name, each in _REGISTRY.items() if each.foretells]
        raise UsageError(
            f"recover_within={recover_within!r} cannot be promised under approach {named.name!r}: "
            f"only {' and '.join(map(repr, able))} knows what a crash would cost; leave one of the "
            "two out"
        )
    settings |= {"recover_within": recover_within, "checkpoint_budget": checkpoint_budget}
    return (default_approach if named is None else type(named).from_settings)(**settings)


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

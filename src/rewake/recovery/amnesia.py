"""Amnesia: no fault tolerance at all (Hwang 3.3).  The price of everything else is measured by it.

Nothing is logged.  After a crash the operator is new, and input goes on wherever the host says:
what was in open windows is lost, and so is output that was not delivered ("gap recovery", Hwang
Table 3.2).  What one life emits is what the operator would emit for the input of that life alone.

The host must set `position` before the first turn of each life.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from rewake.log.frame import Frame, TurnRecord
from rewake.model.stream_event import StreamEvent
from rewake.operators.stateful import StatefulOperator
from rewake.recovery.approach import (
    Approach,
    Emit,
    Keeper,
    Kept,
    Recovery,
    Release,
    Turn,
    by_port,
    register,
)


@register
@dataclass(frozen=True)
class Amnesia(Approach):
    """Forget everything at a crash; costs nothing before it."""

    name: ClassVar[str] = "amnesia"
    keeper: ClassVar[Keeper] = Keeper.NOBODY
    retains: ClassVar[Kept] = Kept.NOWHERE
    release: ClassVar[Release] = Release.AT_ONCE

    def build(
        self,
        operator: StatefulOperator,
        emit: Emit,
        frames: Iterable[Frame],  # noqa: ARG002
    ) -> Recovery:
        """Start anew; whatever log there is, is ignored."""
        return Forgetting(operator, emit)


class Forgetting(Recovery):
    """One operator without fault tolerance.  Invariant: input before `position` is not needed."""

    def __init__(self, operator: StatefulOperator, emit: Emit = by_port) -> None:
        self.operator = operator
        self._emit = emit
        # Set by the host before the first turn: where it found the stream.
        self.position = 0

    @property
    def recovering(self) -> bool:
        """Nothing is ever replayed."""
        return False

    @property
    def acknowledged(self) -> int:
        """All input that was processed."""
        return self.position - 1

    @property
    def frames_needed(self) -> int:
        """None."""
        return 0

    def turn(self, event: StreamEvent, now_ms: float = 0.0) -> Turn:  # noqa: ARG002
        """Process the next stream event; there is nothing to persist."""
        assert event.start == self.position, (
            f"the stream event at {event.start} is not the next one: {self.position}"
        )
        outputs = self._emit(self.operator.process(event))
        self.position = event.end
        return Turn(None, outputs)

    def bare_record(self) -> TurnRecord:
        """A record that says no more than that input up to `position` has been consumed."""
        return TurnRecord(
            t_end=self.position - 1,
            timestamp=self.operator.clock,
            open_windows=self.operator.open_parts,
            tuples=0,
            records=0,
        )

    def progress(self) -> dict[str, float]:
        """Figures for people; nothing can be loaded or replayed."""
        return {
            "open_windows": self.operator.open_parts,
            "extent_records": 0,
            "replay_tuples": 0,
        }

    def check_invariants(self) -> None:
        """What always holds between turns."""
        assert self.acknowledged == self.position - 1

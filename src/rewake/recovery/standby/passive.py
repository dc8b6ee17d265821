"""Passive standby: a second process holds checkpoints and what was recorded since (Hwang 3.3).

The node's records are those of instant checkpoints: a turn leaves its results and the order of its
input, and every so often what has changed of the state, or all of it.  They are relayed as they are
left, not only with the next checkpoint, so output that waits for them does not wait for that.  The
place that stands by holds them and computes nothing; promoted, it loads the newest checkpoint and
processes again what came after, dropping what the records say was emitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from rewake.log.frame import Frame
from rewake.model.errors import UsageError
from rewake.model.stream_event import StreamEvent
from rewake.model.units import duration_in_unit
from rewake.operators.stateful import StatefulOperator
from rewake.recovery.approach import (
    Emit,
    NewOperator,
    Recovery,
    Turn,
    register,
)
from rewake.recovery.driven import Standby
from rewake.recovery.instant.approach import Instant, InstantCheckpointing
from rewake.recovery.instant.reading import CheckpointMark
from rewake.recovery.standby.holding import HoldingPlace
from rewake.recovery.standby.relaying import HeldElsewhere, KeptRecord, Relaying
from rewake.recovery.standby.words import Message, Purpose, encoded

__all__ = ["PassiveStandby"]

_MS: Final = 1_000_000


@register
@dataclass(frozen=True)
class PassiveStandby(HeldElsewhere):
    """A second process holds checkpoints of this one, and goes on from them.

    `every`: how often what has changed is checkpointed; every `full_every`th time everything is.
    """

    name: ClassVar[str] = "passive-standby"
    repeats_turns: ClassVar[bool] = True

    every: str = "50ms"
    full_every: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        duration_in_unit(self.every, _MS)
        if type(self.full_every) is not int or self.full_every < 1:
            raise UsageError(f"full_every={self.full_every!r}: a number of checkpoints, from 1 on")

    def build(self, operator: StatefulOperator, emit: Emit, frames: Iterable[Frame]) -> Recovery:
        """Load the newest checkpoint among what this place held, if it held anything."""
        return _Checkpointing(self, operator, emit, tuple(frames))

    def stand_by(self, make: NewOperator, emit: Emit) -> Standby:  # noqa: ARG002
        """Holds nothing yet."""
        return _Holding()

    def late_tuples_in(self, frame: Frame) -> int:
        """How many tuples had come too late when this record was left."""
        return CheckpointMark.of(frame).late_tuples


class _Checkpointing(Relaying):
    """Where the node runs: has a checkpoint taken when it is time, and relays all records."""

    inner: InstantCheckpointing

    def __init__(
        self,
        settings: PassiveStandby,
        operator: StatefulOperator,
        emit: Emit,
        frames: Sequence[Frame],
    ) -> None:
        when_asked = Instant(every_tuples=1 << 62, full_every=settings.full_every)
        super().__init__(InstantCheckpointing.recover(operator, when_asked, frames, emit), frames)
        self._every_ms = float(duration_in_unit(settings.every, _MS))
        self._due_ms = float("-inf")

    def turn(self, event: StreamEvent, now_ms: float = 0.0) -> Turn:
        """As the inner one; what has changed goes with it when it is time."""
        if now_ms >= self._due_ms and not self.recovering:
            self._due_ms = now_ms + self._every_ms
            self.inner.ask()
        return super().turn(event, now_ms)

    def _anew(self, kept: Sequence[KeptRecord]) -> Iterable[tuple[Purpose, Iterable[bytes]]]:
        return self._more(kept)

    def _more(self, kept: Sequence[KeptRecord]) -> Iterable[tuple[Purpose, Iterable[bytes]]]:
        frames = (encoded(each.record, each.sequence, each.position) for each in kept)
        return [(Purpose.HOLD, frames)]


class _Holding(HoldingPlace):
    """The other place: holds, and computes nothing."""

    def _told(self, message: Message) -> bool:
        """Hold these, too; or these instead, if they do not go on where it is."""
        begins = message.frames[0].sequence if message.frames else message.next
        if begins != self.next:
            self.frames.clear()
        self.frames += message.frames
        return True

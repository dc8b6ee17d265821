"""Logged: a turn's record goes to the log, and its output leaves when that is durable."""

from __future__ import annotations

from typing import ClassVar

from rewake.log.frame import TurnRecord
from rewake.node.commands import Append, NodeCommand, Trim
from rewake.node.protocols.holding import Holding
from rewake.recovery.approach import Kept

__all__ = ["Logged"]


class Logged(Holding):
    """Persists before it forwards."""

    kept: ClassVar[Kept] = Kept.IN_LOG

    def _hand_over(self, sequence: int, position: int, record: TurnRecord) -> list[NodeCommand]:  # noqa: ARG002
        return [Append(record)]

    def durable(self, frames: int) -> list[NodeCommand]:
        """What these frames hold may go, and what only they needed."""
        return self._forward(frames)

    def _forget(self, before: int) -> list[NodeCommand]:
        return [Trim(before)]

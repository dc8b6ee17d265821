"""Subscribers that are behind what a node has in memory: they are given what its log has.

What always holds: one that asks for what was trimmed is turned away, and nobody else; one that has
left is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable

from rewake.model.errors import OutOfRange
from rewake.net.nodes.log import NodeLog
from rewake.node.commands import NodeCommand
from rewake.node.node import Node

__all__ = ["ReadBack"]


class ReadBack:
    """Who waits for frames of the log, and from where; a node without one has nobody."""

    def __init__(
        self,
        node: Node,
        log: NodeLog | None,
        perform: Callable[[str, list[NodeCommand]], None],
    ) -> None:
        self._node = node
        self._log = log
        self._perform = perform
        self._waiting: dict[int, tuple[int, int]] = {}

    @property
    def waiting(self) -> bool:
        """Whether anybody does."""
        return bool(self._waiting)

    def wanted(self, subscriber: int, position: int, sequence: int) -> None:
        """A subscriber is owed frames from here on."""
        self._waiting[subscriber] = (position, sequence)

    def read(self) -> None:
        """Give each some of what is durable, if there is any yet."""
        for subscriber in list(self._waiting):
            if subscriber not in self._waiting:
                continue  # it left because of another
            assert self._log is not None
            try:
                frames = self._log.read_back(subscriber, *self._waiting[subscriber])
            except OutOfRange as error:
                self._perform("unsubscribed", self._node.outputs.trimmed(subscriber, error))
                continue
            if frames:
                del self._waiting[subscriber]
                self._perform("read_back", self._node.read_back(subscriber, frames))

    def forget(self, subscriber: int) -> None:
        """It has left."""
        self._waiting.pop(subscriber, None)
        if self._log is not None:
            self._log.forget(subscriber)

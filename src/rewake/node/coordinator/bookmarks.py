"""Where nodes go on whose input is kept upstream, as the coordinator keeps it for them.

What always holds: a node hears that its bookmark is kept only when a state that holds it is
durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rewake.node.commands import Tell
from rewake.node.messages import KeepBookmark
from rewake.recovery.bookmark import Bookmark, bookmark_of

__all__ = ["Bookmarks"]


class Bookmarks:
    """By node: the newest bookmark, and who waits for it to be durable."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        written = state.get("bookmarks", {})
        self._kept = {node: bookmark_of(each) for node, each in written.items()}
        # Who asked, what to answer, and the version of the state that holds it.
        self._asked: dict[str, tuple[int, KeepBookmark, int]] = {}

    def of(self, node: str) -> Bookmark | None:
        """Where the next attempt of a node goes on."""
        return self._kept.get(node)

    def keep(self, connection: int, message: KeepBookmark, version: int) -> None:
        """Keep it from this version of the state on."""
        self._kept[message.node] = message.bookmark
        self._asked[message.node] = connection, message, version

    def wait_for(self, version: int) -> bool:
        """Whether some are in no state up to this version."""
        return any(each > version for _, _, each in self._asked.values())

    def durable(self, version: int) -> list[Tell]:
        """The state of this version is durable: say so to those who asked."""
        done = [node for node, (_, _, each) in self._asked.items() if each <= version]
        told = [self._asked.pop(node) for node in done]
        return [Tell(connection, message) for connection, message, _ in told]

    def state(self, nodes: Iterable[str]) -> dict[str, Any]:
        """What must survive the driver; `nodes` are all of the query, in its order."""
        if not self._kept:
            return {}
        written = {node: list(each) for node, each in self._kept.items()}
        return {"bookmarks": written, "order": list(nodes)}

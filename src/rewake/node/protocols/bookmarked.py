"""Bookmarked: output leaves at once, and is made again after a crash from where a bookmark says.

What always holds: input is needed again from the start of the bookmark that the coordinator has
made durable, and output before the bookmark is needed by no consumer.  Output waits in memory until
no node can ask for it again.

A watermark without tuples takes a position, too, so that positions alone say what a consumer has
got: everything before them, and nothing behind.
"""

from __future__ import annotations

from typing import ClassVar

from rewake.node.channels.producers import Note
from rewake.node.commands import NodeCommand
from rewake.node.protocols.protocol import LogSoFar
from rewake.node.protocols.under_approach import UnderApproach
from rewake.recovery.approach import Kept, Turn
from rewake.recovery.bookmark import Bookmark

__all__ = ["Bookmarked"]


class Bookmarked(UnderApproach):
    """Forwards at once, and acknowledges what no bookmark needs any more."""

    kept: ClassVar[Kept] = Kept.IN_QUEUE

    @classmethod
    def first_position(cls, epoch: int, past: LogSoFar) -> int:  # noqa: ARG003
        """Where the bookmark says."""
        return 0 if past.bookmark is None else past.bookmark.output

    def _leave(
        self, turn: Turn, rows: int, watermark: int | None, note: Note | None
    ) -> list[NodeCommand]:
        assert note is None, "producers cannot be asked twice"
        if not rows and watermark is None:
            return []
        start, self.end = self.end, self.end + max(rows, 1)
        sent = self.shell.outputs.offer(self._packets(turn.outputs, start, self.end, watermark))
        return sent + self._carry(self.recovery.gave(self.end))

    def bookmark_kept(self, bookmark: Bookmark) -> list[NodeCommand]:
        """What is before its start is needed no more."""
        commands = self._carry(self.recovery.bookmark_kept(bookmark))
        self.needed = self.shell.merge.needed(self.recovery.acknowledged + 1)
        return commands + self.acknowledge(0)

    def tick(self, now_ms: float) -> list[NodeCommand]:  # noqa: ARG002
        """An upstream that has come back may not know what it was told."""
        return self.acknowledge(0)

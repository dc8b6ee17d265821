"""The one interface of what makes nodes different, and what a node lends to it.

A node is a shell: it merges its inputs into turns, keeps output queues, and knows who reads and who
writes.  What a turn becomes, when its output may leave, and what is needed again after a crash are
its protocol's.  The shell tells it what happened, in order; it answers with commands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rewake.graph.plan.plan import NodePlan
from rewake.log.files.lineage import Lineage
from rewake.log.frame import Frame
from rewake.node.channels.input_merge import InputMerge, Taken
from rewake.node.channels.producers import Note, Producers
from rewake.node.channels.subscriptions import Subscriptions
from rewake.node.commands import Acknowledge, Connect, NodeCommand
from rewake.node.limits import NodeLimits
from rewake.node.messages import Ack
from rewake.recovery.approach import Emissions, Kept, Recovery
from rewake.recovery.bookmark import Bookmark
from rewake.recovery.driven import LogSoFar
from rewake.recovery.promises.rates import RecoveryRates

__all__ = ["LogSoFar", "Protocol", "Shell"]


@dataclass(slots=True)
class Shell:
    """What a node lends to its protocol."""

    plan: NodePlan
    epoch: int
    limits: NodeLimits
    merge: InputMerge
    outputs: Subscriptions
    producers: Producers | None
    recovery: Recovery | None
    # From where each input is needed to begin with.
    starts: list[int]
    # Tuples that came in and went out, and what functions failed for.
    tuples_in: int = 0
    tuples_out: int = 0
    dead_letters: int = 0

    def count(self, emissions: Emissions) -> int:
        """How many tuples leave by all outputs; they are counted."""
        rows = 0
        for output, batch in emissions:
            rows += batch.num_rows
            if self.plan.outputs[output].dead:
                self.dead_letters += batch.num_rows
        self.tuples_out += rows
        return rows


class Protocol(ABC):
    """One node's answers to what happens.

    The shell's promise: events come one at a time, and what an answer asks for is done, in order,
    before the next one.
    """

    # Where output that has left memory can be had again.
    kept: ClassVar[Kept]
    # Whether turns may be repeated after a crash, so that their order must be known.
    repeats: ClassVar[bool] = False

    def __init__(self, shell: Shell, past: LogSoFar) -> None:
        self.shell = shell
        self.needed = list(shell.starts)
        # The position after its last output.
        self.end = self.first_position(shell.epoch, past)

    @classmethod
    def rebuild(
        cls,
        plan: NodePlan,  # noqa: ARG003
        frames: Iterable[Frame],  # noqa: ARG003
        past: LogSoFar,  # noqa: ARG003
    ) -> Recovery | None:
        """The operator as it was, if there is one; `frames` are those of its past."""
        return None

    @classmethod
    def first_position(cls, epoch: int, past: LogSoFar) -> int:  # noqa: ARG003
        """The position of its first output in this life."""
        return 0

    # --- inputs ------------------------------------------------------------------------------

    @property
    def wants_input(self) -> bool:
        """Whether it has begun to read."""
        return True

    def start(self, committed: Sequence[int]) -> list[NodeCommand]:  # noqa: ARG002
        """Begin; `committed` says per channel how far a sink's commits reach."""
        return [Connect(channel, position) for channel, position in enumerate(self.shell.starts)]

    def began(self, channel: int, position: int) -> None:
        """An input goes on at `position`, beyond what was asked for: there is a gap."""
        self.shell.merge.bridge(channel, position)

    def inherit(self, lineage: Lineage) -> list[NodeCommand] | None:  # noqa: ARG002
        """An upstream says who wrote its log; None: that is this node's own matter."""
        return None

    def rewind(self, position: int) -> list[NodeCommand]:
        """Output is wanted from `position` on that is neither in memory nor in a log."""
        raise AssertionError(f"output from {position} on is kept elsewhere")

    # --- turns -------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether it may take another turn before those on their way are done."""
        return True

    @property
    def busy(self) -> bool:
        """Whether turns that were taken are not done yet."""
        return False

    @abstractmethod
    def turn(self, taken: Taken, now_ms: float, note: Note | None) -> list[NodeCommand]:
        """A turn was taken; `note` is what it does for a producer."""

    def marked(self, channel: int, words: bytes) -> list[NodeCommand]:  # noqa: ARG002
        """An upstream says this behind all that was taken of a channel."""
        return []

    def ended(self, channel: int) -> list[NodeCommand]:  # noqa: ARG002
        """A channel has ended, and all of it is taken."""
        return []

    # --- what happens to what left -----------------------------------------------------------

    def acked(self) -> list[NodeCommand]:
        """Somebody who reads has made progress."""
        return []

    def durable(self, frames: int) -> list[NodeCommand]:  # noqa: ARG002
        """Every frame with a sequence below `frames` is durable."""
        return []

    def delivered(self, channel: int, position: int) -> list[NodeCommand]:
        """A sink has committed everything of a channel before `position`."""
        raise AssertionError(f"channel {channel} was delivered to nobody, up to {position}")

    def tick(self, now_ms: float) -> list[NodeCommand]:  # noqa: ARG002
        """Once in a while: nothing may stay unsaid because no further turn comes to say it."""
        return []

    def acknowledge(self, channel: int) -> list[NodeCommand]:
        """Free the upstream's window, and say what is not needed again."""
        return [Acknowledge(channel, Ack(self.shell.merge.consumed(channel), self.needed[channel]))]

    @property
    def durable_end(self) -> int:
        """Output before this position may be read back from the log."""
        return self.end

    # --- timers, bookmarks and places --------------------------------------------------------

    def woke(self, now_ms: float) -> list[NodeCommand]:  # noqa: ARG002
        """What `Wake` asked for."""
        return []

    def bookmark_kept(self, bookmark: Bookmark) -> list[NodeCommand]:
        """The coordinator has made durable what it was to keep of this node."""
        raise AssertionError(f"this node asked nobody to keep {bookmark}")

    def joined(self, place: int) -> list[NodeCommand]:
        """Another place of this node can be told something."""
        raise AssertionError(f"this node has no place {place}")

    def left(self, place: int) -> list[NodeCommand]:
        """Another place is gone for good; another attempt may follow it."""
        raise AssertionError(f"this node has no place {place}")

    def heard(self, place: int, words: bytes) -> list[NodeCommand]:
        """Another place says something.  Raises BadPeer when it makes no sense."""
        raise AssertionError(f"this node has no place {place}: {len(words)} bytes")

    # --- for people and tests ----------------------------------------------------------------

    @property
    def pending_bytes(self) -> int:
        """What is on its way and not done."""
        return 0

    @property
    def remembered(self) -> int:
        """How many things are remembered of turns that are done."""
        return 0

    def took(self, rates: RecoveryRates, elapsed_us: float) -> None:  # noqa: B027 (mostly nothing)
        """The last turn took so long: what its tuples and CHECKs cost."""

    def check_invariants(self) -> None:  # noqa: B027 (mostly nothing)
        """What always holds between events."""

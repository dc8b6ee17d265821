"""Named places where a process can be made to die, for drills and tests.

A point is named `<component>.<place>`.  What always holds: without faults a point costs one look
into an empty dict; a fault fires once, in the life of the node that it names, and kills as the
machine would: SIGKILL to itself, no handler, no flush.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rewake.model.errors import UsageError
from rewake.stores.private import make_private_folder, private_opener

# What a node is told; the point is passed when it has answered and nothing is performed yet.
_EVENTS = (
    "start", "began", "lost", "arrived", "source_ended", "durable", "delivered", "subscribed",
    "unsubscribed", "acked", "read_back", "claimed", "work", "tick",
)  # fmt: skip
_COMMANDS = (
    "Append", "Connect", "Acknowledge", "Answer", "Send", "ReadLog", "Disconnect", "Deliver",
    "Confirm", "Trim", "Remember", "Finish",
)  # fmt: skip

# Life of a node's process, in the order in which they are passed.
_LIFE = (
    "node.start", "node.registered", "node.welcomed", "recovery.before_fencing",
    "recovery.after_fencing", "recovery.before_loading", "recovery.after_loading",
    "recovery.replaying", "recovery.replayed", "node.before_work", "node.before_durable",
    "node.before_commit", "node.after_commit", "node.stopping",
)  # fmt: skip
_COORDINATOR = (
    "coordinator.registered", "coordinator.before_persist", "coordinator.after_persist",
    "coordinator.welcoming", "coordinator.lost_node", "coordinator.finished_node",
    "coordinator.stopping",
)  # fmt: skip
# On the writer's own thread: while the bytes are on their way to the disk.
_WRITER = ("writer.durable",)

# In the folder of a query: a line "node point hit life" for every fault that fired.
FIRED_FILE = "faults/fired"

POINTS: tuple[str, ...] = (
    *_LIFE,
    *(f"node.after_{name}" for name in _EVENTS),
    *(f"channel.before_{name}" for name in _COMMANDS),
    *(f"channel.after_{name}" for name in _COMMANDS),
    *_WRITER,
    *_COORDINATOR,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """At the `hit`-th passing of `point` in life number `life` of `node`: die, or fall asleep.

    Lives are epochs as the coordinator gives them: the first attempt of a new query is 1.  Before
    an attempt has been given one, lives are the attempts so far.  Life 0 stands for any.
    """

    node: str
    point: str
    hit: int = 1
    life: int = 1
    action: str = "kill"

    def __post_init__(self) -> None:
        if self.point not in POINTS:
            raise UsageError(
                f"there is no kill point {self.point!r}; `rewake drill --points` lists them"
            )
        if self.action not in ("kill", "pause"):
            raise UsageError(f"a fault kills or pauses; it cannot {self.action!r}")


class KillPoints:
    """The faults of one process, and how often it has passed each point.

    Under `folder`, attempts are counted, since one that died before it had an epoch leaves no other
    trace and its successor must not die of the same fault; and faults that fired are listed.
    """

    def __init__(self, node: str, faults: Iterable[Fault] = (), folder: Path | None = None) -> None:
        self._waiting: dict[str, list[Fault]] = {}
        for fault in faults:
            if fault.node == node:
                self._waiting.setdefault(fault.point, []).append(fault)
        self._passed: dict[str, int] = {}
        self.life = 1
        self._fired: Path | None = None
        if self._waiting and folder is not None:
            self.life = _count_attempt(folder / "faults" / f"{node}.attempts")
            self._fired = folder / FIRED_FILE

    def hit(self, point: str) -> None:
        """The process passes a point."""
        waiting = self._waiting.get(point)
        if waiting is None:
            return
        self._passed[point] = passed = self._passed.get(point, 0) + 1
        for fault in waiting:
            if fault.hit == passed and fault.life in (0, self.life):
                self._fire(fault)

    def _fire(self, fault: Fault) -> None:
        if self._fired is not None:
            _append(self._fired, f"{fault.node} {fault.point} {fault.hit} {self.life}\n")
        os.kill(os.getpid(), signal.SIGKILL if fault.action == "kill" else signal.SIGSTOP)


def _count_attempt(path: Path) -> int:
    """One more attempt; how many there have been."""
    make_private_folder(path.parent)
    _append(path, ".")
    return path.stat().st_size


def _append(path: Path, text: str) -> None:
    with open(path, "a", opener=private_opener) as file:
        file.write(text)

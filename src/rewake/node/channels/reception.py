"""Who comes to a server says with its first message to which of the nodes there.

Those nodes open one after the other: who comes for one that is not open yet waits until it is.
Until it is answered a subscriber may ack what it has from before, and of its acks the last counts;
another place of a node may say what it has to.
What always holds: a line waits for one node, in the order in which lines came; who says anything
else is refused; nobody is given to a node that is not hosted here.

The host's duties: tell what such lines say (`received`) and that they have ended (`closed`), and
when a node is open; from `admit` on a line is that node's, and after `refuse` it is to be ended.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

from rewake.node.messages import Ack, Follow, Peek, Produce, Refused, Subscribe, Words

__all__ = ["Reception"]

Line = TypeVar("Line", bound=Hashable)


class Reception(Generic[Line]):
    """The lines that have come to a server and not yet to one of its nodes (a `Hearer`)."""

    def __init__(
        self,
        nodes: Iterable[str],
        admit: Callable[[str, Line, list[Any]], None],
        refuse: Callable[[Line, Refused], None],
    ) -> None:
        self._nodes = tuple(nodes)
        self._admit = admit
        self._refuse = refuse
        self._open: set[str] = set()
        # For whom each waits, and what it has said: first what it wants.
        self._waiting: dict[Line, tuple[str, list[Any]]] = {}

    def opened(self, node: str) -> None:
        """A node can be come to from now on: who waits for it does."""
        self._open.add(node)
        for line in [line for line, (name, _) in self._waiting.items() if name == node]:
            _, messages = self._waiting.pop(line)
            self._admit(node, line, messages)

    def authenticated(self, line: Line) -> None:
        """Whoever comes speaks first."""

    def received(self, line: Line, messages: list[Any]) -> None:
        """What somebody says who is with none of the nodes yet."""
        if line not in self._waiting:
            first, *messages = messages
            wrong = self._wrong(first)
            if wrong:
                self._refuse(line, Refused(wrong))
                return
            if first.node in self._open:
                self._admit(first.node, line, [first, *messages])
                return
            self._waiting[line] = (first.node, [first])
        for message in messages:
            self._wait_on(line, message)

    def _wrong(self, first: Any) -> str:
        if not isinstance(first, Subscribe | Produce | Peek | Follow):
            return _out_of_turn(first)
        if first.node not in self._nodes:
            here = ", ".join(map(repr, self._nodes))
            return f"this is the server of {here}, not of {first.node!r:.100}"
        return ""

    def _wait_on(self, line: Line, message: Any) -> None:
        waiting = self._waiting.get(line)
        if waiting is None:
            return  # it was refused
        said = waiting[1]
        if isinstance(message, Ack) and isinstance(said[0], Subscribe):
            said[1:] = [message]
            return
        if isinstance(message, Words) and isinstance(said[0], Follow):
            said.append(message)
            return
        del self._waiting[line]
        self._refuse(line, Refused(_out_of_turn(message)))

    def closed(self, line: Line) -> None:
        """It has ended."""
        self._waiting.pop(line, None)


def _out_of_turn(message: object) -> str:
    return f"a peer sent {type(message).__name__} out of turn"

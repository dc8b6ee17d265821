"""What a peer may say, by the token with which it has proven who it is.

Nodes have the query's token and may say everything.  Clients have one that is derived from it, and
may say what reads and produces: nothing that registers, supersedes or ends a node, or that passes
for one.  What is not allowed here is refused; a message that nobody thought of is.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from rewake.node.messages import Ack, Find, Packet, Peek, Produce, Subscribe

__all__ = ["Right", "refusal"]

_OF_CLIENTS: Final = (Find, Subscribe, Ack, Produce, Packet, Peek)


class Right(Enum):
    """Which token a peer has."""

    NODE = "node"
    CLIENT = "client"


def refusal(right: Right, message: object) -> str | None:
    """Why a peer with this right may not say this; None when it may."""
    if right is Right.NODE:
        return None
    if not isinstance(message, _OF_CLIENTS):
        return f"a client may not send {type(message).__name__}: it reads and produces alone"
    if isinstance(message, Subscribe) and message.epoch:
        return "a client may not subscribe as a node, with an epoch"
    return None

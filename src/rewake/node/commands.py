"""What a node, its links or the coordinator ask of their host.

The host performs commands in the order given.  Duties that order alone does not say are in the
docstring of each command.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rewake.log.frame import TurnRecord
from rewake.model.stream_event import StreamEvent
from rewake.node.messages import (
    Ack,
    Address,
    Begins,
    Follow,
    InSync,
    KeepBookmark,
    Packet,
    Refused,
    Subscribe,
)
from rewake.recovery.driven import Say, Vouch, Wake


@dataclass(frozen=True, slots=True)
class Append:
    """Append to the node's log; call `durable` when it (and all before it) is durable."""

    record: TurnRecord


@dataclass(frozen=True, slots=True)
class Connect:
    """Have an input channel deliver from `position` on, now and until told otherwise.

    For a source: seek.  For an upstream: `Channels.carry` drops the present link, if there is one,
    and dials.  Nothing that was in flight on the earlier link is delivered afterwards.
    """

    channel: int
    position: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Tell the upstream of a channel; dropped silently when it is not connected."""

    channel: int
    ack: Ack


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a subscriber or producer; after `Refused` close the connection."""

    subscriber: int
    message: Begins | Refused


@dataclass(frozen=True, slots=True)
class Send:
    """Send to a subscriber, in order; the amount in flight is bounded by the node."""

    subscriber: int
    packet: Packet


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Read frames of the node's own log that are durable and end at `position` or after it.

    Those with a lower `sequence` have been read before.  Then call `read_back(subscriber, frames)`
    with some (at least one, as many as are at hand); earlier ones among them do no harm.
    """

    subscriber: int
    position: int
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close a connection: the same subscriber or producer has come by another."""

    subscriber: int


@dataclass(frozen=True, slots=True)
class Confirm:
    """Tell a producer what is durable; dropped silently when it is gone."""

    producer: int
    ack: Ack


@dataclass(frozen=True, slots=True)
class Deliver:
    """Give to the sink; commit when it pays, and call `delivered` for what is committed."""

    channel: int
    event: StreamEvent


@dataclass(frozen=True, slots=True)
class Trim:
    """Nobody needs the log's frames before this sequence number any more."""

    before: int


@dataclass(frozen=True, slots=True)
class Finish:
    """All of a finite stream is delivered and durable: tell the coordinator, keep serving."""


@dataclass(frozen=True, slots=True)
class Remember:
    """Make durable where the node's input comes from, before the next command or arrival.

    Said whenever an upstream begins: mostly it is what is durable already, and nothing is to do.
    """

    origins: dict[str, Any]


# --- of links ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dial:
    """Open a link of this number and say `message`; call `closed` when it ends or cannot be."""

    link: int
    address: Address
    message: Subscribe | Follow


@dataclass(frozen=True, slots=True)
class Tell:
    """Say something on a link; dropped silently when it is not there any more."""

    link: int
    message: object


@dataclass(frozen=True, slots=True)
class HangUp:
    """End a link, and call nothing: after all that was said on it, or `at_once`."""

    link: int
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Rest:
    """Call `rested` for this channel after so long."""

    channel: int
    ms: float


# --- of the coordinator --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Persist:
    """Make the coordinator's state durable, then call `persisted(version)`."""

    version: int
    state: dict[str, Any]


@dataclass(frozen=True, slots=True)
class KillServer:
    """End the process of a server that is silent, so that its place is free for the next one.

    `pid` is what it has said: the host kills it only if it is at the other end of the connection.
    """

    nodes: tuple[str, ...]
    pid: int
    connection: int


@dataclass(frozen=True, slots=True)
class EndQuery:
    """The query is over: all finished, stopped, or `error`.

    `misfit`: because parts of the query are not of one history.
    """

    error: str | None = None
    misfit: bool = False


# --- of an approach ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Announce:
    """Say something to the coordinator."""

    message: InSync | KeepBookmark


NodeCommand = (
    Append
    | Connect
    | Acknowledge
    | Answer
    | Send
    | ReadLog
    | Disconnect
    | Confirm
    | Deliver
    | Trim
    | Finish
    | Remember
    | Announce
    | Say
    | Vouch
    | Wake
)
LinkCommand = Dial | Tell | HangUp | Rest | Announce
# What a host performs for a node and its links.
HostCommand = NodeCommand | LinkCommand
CoordinatorCommand = Persist | Tell | HangUp | KillServer | EndQuery

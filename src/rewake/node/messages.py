"""What nodes, clients and the coordinator say to each other, as values.

How they become bytes is the matter of `rewake.net`; the simulator passes them as they are.

A conversation between nodes: the downstream connects and sends `Subscribe`; the upstream answers
`Begins` or `Refused`, then sends `Packet`s; the downstream sends `Ack`s.  A producer connects,
sends `Produce`, is answered `Begins` or `Refused`, and sends packets itself; the node acks what is
durable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rewake.log.files.lineage import Lineage, LogRecord
from rewake.log.frame import Buffer
from rewake.model.errors import UsageError
from rewake.recovery.bookmark import Bookmark

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Packet:
    """A stream event as it travels: `rows` tuples at the end of the positions start..end.

    `rows` is -1 when only the payload knows (it was read back from a log).  `payload` is an Arrow
    IPC record batch message, empty when there are no rows.  `final`: the stream ends at `end`, for
    ever; such a packet is empty.  `marker`: what a protocol says behind all that was sent before;
    such a packet is empty, too, and stands between two positions.
    """

    start: int
    end: int
    rows: int = 0
    watermark: int | None = None
    payload: Buffer = b""
    final: bool = False
    marker: bytes = b""

    @property
    def size(self) -> int:
        """Bytes that it holds in memory, roughly."""
        return len(self.payload) + len(self.marker) + 64


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A downstream wants an output from `position` on; what is sent first may start before it.

    `epoch` is the downstream's own, `expects` the lowest upstream epoch it accepts.  A negative
    position asks for whatever comes next.  A client that is not a node has epoch 0 and holds
    nothing back: nobody waits for it, and what it misses in memory it gets from the log.
    """

    node: str
    output: int
    subscriber: str
    epoch: int
    position: int
    expects: int = 0


@dataclass(frozen=True, slots=True)
class Begins:
    """Accepted: what follows covers `position` on.  Beyond what was asked for: there is a gap.

    To a subscriber the epoch is the node's; to a producer it is its own, from now on.
    `lineage` is that of the log whose positions these are, if there is one.  A node that passes
    on what others keep says it later, when it knows, and again when it changes.
    """

    position: int
    epoch: int
    lineage: Lineage | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Not accepted; `fenced` when the asking epoch is an old one.

    `misfit`: what is asked for was never in the log, so that one of the two is not of this history.
    `later`: nothing is wrong; ask again.
    """

    reason: str
    fenced: bool = False
    misfit: bool = False
    later: bool = False


@dataclass(frozen=True, slots=True)
class Ack:
    """`consumed`: processed up to here (frees the window).  `needed`: from here on needed again.

    To a producer: so many packets of this connection are durable; its position after them.
    """

    consumed: int
    needed: int


@dataclass(frozen=True, slots=True)
class Produce:
    """A producer outside of Rewake offers tuples to the input `channel` of a node.

    `epoch` 0 claims the name; any other is what an earlier `Begins` said, and then everything of
    this producer before `position` was said to be durable.
    """

    node: str
    channel: str
    producer: str
    epoch: int = 0
    position: int = 0


@dataclass(frozen=True, slots=True)
class Peek:
    """A client asks what the open windows of a node come to so far; a packet is the answer.

    The packet starts at the node's input position.
    """

    node: str


# --- between the places of a node ----------------------------------------------------------------

MAX_WORDS_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Follow:
    """A place of a node stands by, and connects to where the node runs.

    `epoch` is its own: of two attempts at one place only the later is heard.
    """

    node: str
    place: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Words:
    """What places of a node say to each other; only the node's approach knows what it means."""

    words: Buffer

    def __post_init__(self) -> None:
        if len(self.words) > MAX_WORDS_BYTES:
            raise UsageError(
                f"an approach tells another place {len(self.words)} bytes at once; the limit is "
                f"{MAX_WORDS_BYTES}: say it in several messages"
            )


# --- with the coordinator ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Peer:
    """Where the current attempt of a node listens."""

    address: Address
    epoch: int


@dataclass(frozen=True, slots=True)
class Register:
    """An attempt to run a node has started, on a server; one says this for each of its nodes."""

    node: str
    address: Address
    pid: int = 0
    host: str = ""
    # The server's name; the node's own when it has a server of its own.
    server: str = ""
    # Which of the processes that the node may run in.
    place: int = 0


@dataclass(frozen=True, slots=True)
class Welcome:
    """Run with this epoch; all lower ones are fenced.  `log`: what is known of the node's log.

    `standby`: do not run the node, but stand by where it runs; who does so may be welcomed again,
    to run it.  `bookmark`: from where to go on, of a node that keeps nothing itself.
    """

    node: str
    epoch: int
    peers: dict[str, Peer] = field(default_factory=dict)
    log: LogRecord | None = None
    standby: bool = False
    bookmark: Bookmark | None = None


@dataclass(frozen=True, slots=True)
class PeerMoved:
    """A node has a new attempt (or None: it is lost, wait)."""

    node: str
    peer: Peer | None


@dataclass(frozen=True, slots=True)
class InSync:
    """A node says of a place that stands by: it holds all that it takes to go on.

    `epoch` is the node's, `standby` that of the attempt at the place.
    """

    node: str
    epoch: int
    place: int
    standby: int


@dataclass(frozen=True, slots=True)
class PlaceLost:
    """An attempt that stood by is gone and will never run the node; nothing need wait for it."""

    node: str
    place: int
    standby: int


@dataclass(frozen=True, slots=True)
class KeepBookmark:
    """A node asks for its bookmark to be kept; said back to it when that is durable."""

    node: str
    epoch: int
    bookmark: Bookmark


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A node lives, how it is doing, and how far its log is durable, if it has one."""

    node: str
    epoch: int
    progress: dict[str, Any] = field(default_factory=dict)
    log: LogRecord | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """A node has delivered all of a finite stream, durably."""

    node: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A node cannot go on; a restart would not help when `fatal`.

    `misfit`: because parts of the query are not of one history.
    """

    node: str
    epoch: int
    error: str
    fatal: bool = True
    misfit: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """The query ends, for all nodes of a server: make durable what there is, close, leave."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Superseded:
    """A later attempt runs this node: the whole server leaves at once, and writes nothing."""

    epoch: int
    node: str = ""


@dataclass(frozen=True, slots=True)
class Find:
    """A client asks where a stream can be subscribed to."""

    stream: str


@dataclass(frozen=True, slots=True)
class Found:
    """Where its shards are, of those that run now: [node, output, host, port, epoch, shard] each.

    `shards` is how many there are in all; 0: the query has no such stream.  `over`: no node will
    run again; then `error` says why, if the query failed, and `misfit` whether because its parts
    are not of one history.
    """

    stream: str
    shards: int
    places: list[list[Any]] = field(default_factory=list)
    over: bool = False
    error: str = ""
    misfit: bool = False

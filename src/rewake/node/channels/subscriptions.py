"""The subscribers of a node: who reads which output, and what they are to be sent next.

How an output that is asked for from an earlier position is served differs by where it is kept:

- logged: from the log, then from memory (`ReadLog`);
- in the queue: from memory, where it stays until no node can ask for it again;
- transparent (stateless, not logged): it is produced again, by asking upstream again (`rewind`);
- otherwise it is lost: the answer says where the stream goes on (a gap: amnesia).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from rewake.log.files.lineage import WHAT_TO_DO, Lineage
from rewake.log.frame import Frame
from rewake.model.errors import HistoryMismatch, OutOfRange, UsageError
from rewake.node.channels.output_queue import OutputQueue
from rewake.node.channels.packets import packet_in
from rewake.node.commands import Answer, Disconnect, NodeCommand, ReadLog, Send
from rewake.node.limits import NodeLimits
from rewake.node.messages import Ack, Begins, Packet, Refused, Subscribe
from rewake.recovery.approach import Kept


class Subscriptions:
    """All outputs of a node and all who read them.

    `rewind(position)` is called when output must be produced again from there on.
    """

    def __init__(
        self,
        consumers: Sequence[tuple[str, ...]],
        position: int,
        *,
        epoch: int,
        kept: Kept,
        limits: NodeLimits,
        sequence: int = 0,
        lineage: Lineage | None = None,
        remade: bool = False,
        rewind: Callable[[int], list[NodeCommand]],
    ) -> None:
        self._epoch = epoch
        self._kept = kept
        # Whether what left before a crash may have to be made again, under the same positions.
        self._remade = remade
        self._rewind = rewind
        self._limits = limits
        self._consumers = consumers
        self.queues = [
            OutputQueue(
                position,
                memory_bytes=limits.queue_bytes,
                window_bytes=limits.window_bytes,
                # Without a log nothing has left memory for one.
                sequence=sequence if kept is Kept.IN_LOG else 0,
            )
            for _ in consumers
        ]
        for queue, names in zip(self.queues, consumers, strict=True):
            # Until a consumer has said what it needs, it may need everything.
            queue.needed = dict.fromkeys(names, 0)
        self._output_of: dict[int, int] = {}
        self._epochs: dict[str, int] = {}
        # Of the log whose positions the outputs have.
        self._lineage = lineage
        self.started = False

    # --- arrivals ----------------------------------------------------------------------------

    def subscribed(self, connection: int, message: Subscribe) -> list[NodeCommand]:
        """Somebody wants an output."""
        refusal = self._refusal(message)
        if refusal is not None:
            return [Answer(connection, refusal)]
        commands: list[NodeCommand] = []
        queue = self.queues[message.output]
        if self._kept is Kept.IN_LOG and message.position > queue.end:
            # It is not served.  Whoever has consumed more than there is finds that out by itself:
            # if tuples are only passed on by who asks, that is a node further down.
            return [Answer(connection, self._begins(queue, message.position))]
        # Clients, who have no epochs, may share a name; of a node only one attempt is served.
        earlier = queue.connection_of(message.subscriber) if message.epoch else None
        if earlier is not None:
            commands += [Disconnect(earlier), *self.unsubscribed(earlier)]
        required = message.epoch > 0 and message.subscriber in self._consumers[message.output]
        if required:
            # Only of those the plan knows: the names of strangers would never be forgotten.
            self._epochs[message.subscriber] = message.epoch
        position = queue.end if message.position < 0 else message.position
        if self._kept is Kept.NOWHERE or (self._kept is Kept.IN_QUEUE and not required):
            # Who is ahead of what is made again waits for it, as nodes do.
            waits = position > queue.end and self._kept is Kept.IN_QUEUE and self._remade
            position = position if waits else min(max(position, queue.first), queue.end)
        queue.subscribe(connection, message.subscriber, position, required=required)
        self._output_of[connection] = message.output
        commands.append(Answer(connection, self._begins(queue, position)))
        if self._kept is Kept.UPSTREAM and (position < queue.first or not self.started):
            commands += self._go_back(position)
        self.started = True
        return commands + self.flow(connection)

    def _go_back(self, position: int) -> list[NodeCommand]:
        """Have output made again from `position` on, or from where somebody else still is.

        A client that is so far behind that nobody keeps it for a node is sent away.
        """
        commands: list[NodeCommand] = []
        needed = self.needed()
        for queue in self.queues:
            for connection in list(queue.connections):
                cursor = queue.cursor(connection)
                assert cursor is not None
                if cursor.required or cursor.position >= needed:
                    position = min(position, cursor.position)
                else:
                    commands += [Disconnect(connection), *self.unsubscribed(connection)]
        return commands + self._rewind(position)

    def _begins(self, queue: OutputQueue, position: int) -> Begins:
        if self._lineage is None:
            return Begins(position, self._epoch)
        # It ends where it did when its keeper said so, or where it has come to since.
        end = max(self._lineage.end, queue.end)
        return Begins(position, self._epoch, replace(self._lineage.since(position), end=end))

    def inherit(self, lineage: Lineage) -> list[NodeCommand]:
        """The upstream, whose positions these are, says who wrote them: pass it on."""
        self._lineage = lineage
        return [
            Answer(connection, Begins(0, self._epoch, lineage)) for connection in self._output_of
        ]

    def _refusal(self, message: Subscribe) -> Refused | None:
        if message.expects > self._epoch:
            return Refused(f"epoch {self._epoch} was superseded by {message.expects}", later=True)
        if not 0 <= message.output < len(self.queues):
            return Refused(f"node {message.node!r} has {len(self.queues)} outputs")
        known = self._epochs.get(message.subscriber, 0)
        if message.epoch < known:
            return Refused(
                f"epoch {message.epoch} of {message.subscriber!r} was superseded by {known}", True
            )
        # Where it begins is up to those whom it must serve: a client could send it anywhere.
        awaited = self._kept is Kept.UPSTREAM and not self.started and any(self._consumers)
        if awaited and not message.epoch:
            return Refused(f"node {message.node!r} waits for its consumers; ask again", later=True)
        if self._kept is Kept.UPSTREAM and not message.epoch and message.position >= 0:
            first = min(self.needed(), self.queues[message.output].first)
            if message.position < first:
                return Refused(
                    f"node {message.node!r} keeps nothing itself, and what its consumers have is "
                    f"not made again for a client; ask from position {first} on"
                )
        end = self.queues[message.output].end
        if self._kept is Kept.IN_QUEUE and message.epoch and message.position >= 0:
            return self._beyond_queue(message)
        ahead = self._kept is Kept.IN_LOG and message.position > end
        if ahead and not message.epoch:
            return Refused(
                f"its log ends at {end}; ask again when it has come as far, or begin at "
                '"latest"; if it was read up to there before, it is older than it was: '
                f"{WHAT_TO_DO}"
            )
        if ahead and self._lineage is None:
            return Refused(
                f"{message.subscriber!r} asks for position {message.position}, but the log ends at "
                f"{end}: the log is older than what was made from it; {WHAT_TO_DO}",
                misfit=True,
            )
        return None

    def unsubscribed(self, connection: int) -> list[NodeCommand]:
        """A subscriber's connection is gone."""
        output = self._output_of.pop(connection, None)
        if output is not None:
            self.queues[output].unsubscribe(connection)
        return []

    def acked(self, connection: int, ack: Ack) -> list[NodeCommand]:
        """A subscriber made progress."""
        output = self._output_of.get(connection)
        if output is None:
            return []
        self.queues[output].acked(connection, ack.consumed, ack.needed)
        return self.flow(connection)

    def read_back(self, connection: int, frames: Iterable[Frame], end: int) -> list[NodeCommand]:
        """Frames that a subscriber asked for; those from position `end` on are not durable yet."""
        output = self._output_of.get(connection)
        cursor = None if output is None else self.queues[output].cursor(connection)
        if output is None or cursor is None:
            return []
        cursor.reading = False
        at = cursor.position
        for frame in frames:
            if frame.position + frame.tuples > end:
                break
            if frame.sequence < cursor.seen:
                continue
            cursor.seen = frame.sequence + 1
            packet = packet_in(frame, output)
            if packet is None or (packet.end <= at and packet.start != at):
                continue
            at = packet.end
            cursor.backlog.append(packet)
        return self.flow(connection)

    def trimmed(self, connection: int, error: OutOfRange) -> list[NodeCommand]:
        """The log has no more what `ReadLog` asked for: a client's own mistake; a node is too old.

        Raises HistoryMismatch for the latter.
        """
        output = self._output_of.get(connection)
        cursor = None if output is None else self.queues[output].cursor(connection)
        if cursor is not None and cursor.required:
            raise HistoryMismatch(
                f"the consumer {cursor.name!r} asks for what it once said it needs no more: "
                f"{error}; it is older than the log; {WHAT_TO_DO}"
            ) from error
        return [Answer(connection, Refused(str(error))), *self.unsubscribed(connection)]

    def _beyond_queue(self, message: Subscribe) -> Refused | None:
        """Why a node is not served that asks for what memory does not hold, or never held."""
        queue = self.queues[message.output]
        if queue.first <= message.position and (self._remade or message.position <= queue.end):
            return None  # who is ahead is sent nothing until this has come as far
        return Refused(
            f"{message.subscriber!r} asks for position {message.position} of {message.node!r}, "
            f"whose memory holds {queue.first} to {queue.end}: the two are not of one history; "
            "start the query in a new folder",
            misfit=True,
        )

    # --- sending -----------------------------------------------------------------------------

    def offer(self, packets: Sequence[Packet], sequence: int = -1) -> list[NodeCommand]:
        """One packet per output may be forwarded now; `sequence` is that of their frame."""
        commands: list[NodeCommand] = []
        for queue, packet in zip(self.queues, packets, strict=True):
            queue.offer(packet, sequence)
            for connection in queue.connections:
                commands += self.flow(connection)
            commands += self._forget(queue)
        return commands

    def mark(self, words: bytes) -> list[NodeCommand]:
        """Say this to the nodes that read now, behind all that was offered.

        A link that breaks loses what was not sent, and who connects again is not told it.
        """
        commands: list[NodeCommand] = []
        for queue in self.queues:
            queue.mark(words)
            for connection in queue.connections:
                commands += self.flow(connection)
        return commands

    def tell(self, token: int) -> list[NodeCommand]:
        """Whoever has been sent all that there is now is told this token."""
        commands: list[NodeCommand] = []
        for queue in self.queues:
            queue.token = max(queue.token, token)
            for connection in queue.connections:
                commands += self.flow(connection)
        return commands

    def flow(self, connection: int) -> list[NodeCommand]:
        """Send what the windows allow."""
        output = self._output_of.get(connection)
        if output is None:
            return []
        queue = self.queues[output]
        commands: list[NodeCommand] = [
            Send(connection, packet) for packet in queue.sendable(connection)
        ]
        if self._kept is Kept.IN_LOG:
            position = queue.must_read(connection)
            cursor = queue.cursor(connection)
            if position is not None and cursor is not None:
                cursor.reading = True
                commands.append(ReadLog(connection, position, cursor.seen))
        else:
            commands += self._forget(queue)
        return commands

    def _forget(self, queue: OutputQueue) -> list[NodeCommand]:
        if self._kept is Kept.IN_LOG:
            queue.forget_stored()
        elif self._kept is Kept.IN_QUEUE:
            return self._forget_unneeded(queue)
        else:
            queue.forget_sent()
        return []

    def _forget_unneeded(self, queue: OutputQueue) -> list[NodeCommand]:
        """Keep what nodes may ask for; a client that is further behind is sent away."""
        queue.forget_unneeded()
        self._check_retained(queue)
        commands: list[NodeCommand] = []
        for connection in queue.left_behind():
            commands += [Disconnect(connection), *self.unsubscribed(connection)]
        return commands

    def _check_retained(self, queue: OutputQueue) -> None:
        if queue.bytes <= self._limits.retained_bytes:
            return
        last = min(queue.needed, key=queue.needed.__getitem__)
        raise UsageError(
            f"{queue.bytes >> 20} MiB of output wait in memory, because {last!r} may ask for it "
            f"again from position {queue.needed[last]} on; choose an approach with a log for the "
            "step that it comes from, or have the other need less of its input (recover_within)"
        )

    def finish(self) -> list[NodeCommand]:
        """Nothing will follow, for ever."""
        commands: list[NodeCommand] = []
        for queue in self.queues:
            queue.finish()
            for connection in queue.connections:
                commands += self.flow(connection)
        return commands

    def restart(self, position: int) -> None:
        """Output is produced again from `position` on; the log it comes from is no shorter now."""
        if self._lineage is not None:
            end = max(self._lineage.end, *(queue.end for queue in self.queues))
            self._lineage = replace(self._lineage, end=end)
        for queue in self.queues:
            queue.restart(position)

    # --- bounds ------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether the node may produce more before its subscribers have caught up."""
        if self._kept is Kept.IN_QUEUE:
            return all(queue.has_room_unless_taken for queue in self.queues)
        if self._kept is not Kept.IN_LOG:
            return all(queue.has_room for queue in self.queues)
        return all(
            queue.lag() < self._limits.lag_tuples
            and queue.end - min(queue.needed.values(), default=queue.end)
            < self._limits.backlog_tuples
            for queue in self.queues
        )

    def needed(self) -> int:
        """The lowest position that any consumer may ask for again."""
        return min(
            (at for queue in self.queues for at in queue.needed.values()),
            default=max((queue.end for queue in self.queues), default=0),
        )

    @property
    def served(self) -> bool:
        """Whether everyone who is connected has been sent everything, the end included."""
        return all(queue.served for queue in self.queues)

    def lag(self) -> int:
        """How many positions the slowest connected consumer is behind."""
        return max((queue.lag() for queue in self.queues), default=0)

    def check_invariants(self) -> None:
        """What always holds between events."""
        for queue in self.queues:
            queue.check_invariants()

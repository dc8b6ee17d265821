"""One output of a fragment: what may be forwarded, and how far each subscriber has got.

What is in the queue may be sent (for a fragment that logs: it is durable).  Each subscriber has one
cursor, the next position it is owed; everything sent to it continues there, whether it comes from
memory or, for a subscriber that is behind, from the log.  That is why past and live cannot be mixed
up: there is no second place to be.

A subscriber is *required* when it is a node of the query: what it has not acknowledged is kept for
it (in the log, or in memory when there is none), also while it is gone.  Others are clients: served
as long as they keep up, from the log when they do not, and waited for by nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from rewake.model.stream_event import IDLE
from rewake.node.messages import Packet

# Who is so many markers behind is not told the earliest.
MOST_MARKERS: Final = 65_536
# To look at every packet after every event would take a long queue a square of its length.
_LONG: Final = 64


@dataclass(slots=True)
class Cursor:
    """How far one connection has got."""

    name: str
    position: int
    window_bytes: int
    required: bool
    # Read from the log for this subscriber and not sent yet.
    backlog: deque[Packet] = field(default_factory=deque)
    reading: bool = False
    # Frames of the log below this sequence were looked at for it, or hold nothing that it is owed.
    seen: int = 0
    flight: deque[tuple[int, int]] = field(default_factory=deque)
    flight_bytes: int = 0
    # What protocols say to it: before which packet, and the words.
    markers: deque[tuple[int, Packet]] = field(default_factory=deque)
    told_end: bool = False
    # What it was told last of the rounds of a cycle.
    told_token: int = -1

    @property
    def has_room(self) -> bool:
        """Whether more may be in flight; one packet always may, however large."""
        return not self.flight or self.flight_bytes < self.window_bytes

    def sent(self, packet: Packet) -> None:
        """A packet is in flight."""
        self.position = max(self.position, packet.end)
        self.flight.append((packet.end, packet.size))
        self.flight_bytes += packet.size

    def due(self, number: int) -> Iterator[Packet]:
        """What protocols say to it before this packet; nothing waits for an answer to that."""
        while self.markers and self.markers[0][0] <= number:
            yield self.markers.popleft()[1]

    def consumed(self, position: int) -> None:
        """The subscriber is done with everything before `position`."""
        while self.flight and self.flight[0][0] <= position:
            self.flight_bytes -= self.flight.popleft()[1]


class OutputQueue:
    """Packets in memory, oldest first, and the cursors of those who read them.

    Invariants: packets cover `first` to `end` without gap; a cursor that is not reading the log is
    at or after `first`.
    """

    def __init__(
        self, position: int, *, memory_bytes: int, window_bytes: int, sequence: int = 0
    ) -> None:
        self._packets: dict[int, Packet] = {}  # by number, numbers consecutive
        self._sequences: dict[int, int] = {}  # by number: of the frame that holds the packet
        # What is in frames below this sequence has left memory.  Positions alone do not tell: a
        # watermark that stands alone covers none.
        self.first_sequence = sequence
        self._oldest = 0
        self._newest = 0
        self.first = self.end = position
        self.bytes = 0
        self.final = False
        # The latest token, on a cycle: it is behind all that is here.
        self.token = -1
        self._memory_bytes = memory_bytes
        self._window_bytes = window_bytes
        self._cursors: dict[int, Cursor] = {}
        self._numbers: dict[int, int] = {}  # by connection: the next packet to look at
        # By name of a required subscriber: from where it may ask again.
        self.needed: dict[str, int] = {}

    # --- what there is to send ---------------------------------------------------------------

    def offer(self, packet: Packet, sequence: int = -1) -> None:
        """A packet that may be forwarded; it continues where the last one ended.

        `sequence` is that of the frame that holds it, if there is one.
        """
        assert packet.start == self.end, f"{packet.start} does not continue {self.end}"
        if self._takes_the_place_of_the_newest(packet):
            self._newest -= 1
            self.bytes -= self._packets[self._newest].size
            for connection in self._numbers:
                self._numbers[connection] = min(self._numbers[connection], self._newest)
        self._packets[self._newest] = packet
        self._sequences[self._newest] = sequence
        self._newest += 1
        self.bytes += packet.size
        self.end = packet.end

    def mark(self, words: bytes) -> None:
        """Say this to every node that reads now, behind all that was offered."""
        marker = Packet(self.end, self.end, marker=words)
        for cursor in self._cursors.values():
            if cursor.required:
                cursor.markers.append((self._newest, marker))
                if len(cursor.markers) > MOST_MARKERS:
                    cursor.markers.popleft()

    def finish(self) -> None:
        """There is nothing after `end`, for ever."""
        self.final = True

    def restart(self, position: int) -> None:
        """What follows is produced again from `position` on."""
        self._packets.clear()
        self._sequences.clear()
        self._oldest = self._newest
        self.bytes = 0
        self.first = self.end = position
        self.final, self.token = False, -1
        for cursor in self._cursors.values():
            cursor.told_end, cursor.told_token = False, -1
            cursor.markers.clear()

    def forget_sent(self) -> None:
        """Drop what every connected subscriber has been sent and no absent one may want."""
        connected = {cursor.name for cursor in self._cursors.values()}
        waiting = [at for name, at in self.needed.items() if name not in connected]
        floor = min([cursor.position for cursor in self._cursors.values()] + waiting, default=0)
        while self._packets:
            oldest = self._packets[self._oldest]
            # A watermark alone stands at a position without covering it: whoever has come that
            # far need not have got it, but where there is no room the latest says enough.
            if oldest.end > floor or (oldest.start == floor and not self._outdated(self._oldest)):
                break
            self._drop_oldest()

    def forget_unneeded(self) -> None:
        """Drop what no required subscriber can ask for again."""
        floor = min(self.needed.values(), default=self.end)
        # A watermark alone stands at a position without covering it: whoever goes on there may not
        # have got it.
        while self._packets and self._packets[self._oldest].end < floor:
            self._drop_oldest()

    def _takes_the_place_of_the_newest(self, packet: Packet) -> bool:
        """Whether a watermark says all that one before it says, which everybody has been sent.

        Only where there is no room: who makes its output again wants them one by one.
        """
        newest = self._packets.get(self._newest - 1)
        if self.has_room or newest is None:
            return False
        return _outdates(packet, newest) and self._passed(self._newest - 1)

    def _outdated(self, number: int) -> bool:
        """Whether a watermark alone is there again, later, and everybody has been sent it."""
        packet = self._packets[number]
        if self.has_room or not _stands_alone(packet) or not self._passed(number):
            return False
        for later in range(number + 1, self._newest):
            if _outdates(self._packets[later], packet):
                return True
            if self._packets[later].end > packet.end:
                break
        return False

    def _passed(self, number: int) -> bool:
        """Whether a packet has been sent to all who are connected, or they need it no more."""
        return all(each > number for each in self._numbers.values())

    def left_behind(self) -> list[int]:
        """Connections that are owed what has left memory."""
        return [key for key, cursor in self._cursors.items() if self._behind(cursor)]

    def forget_stored(self) -> None:
        """Drop what exceeds the memory allowed; it can be read back from the log."""
        while self.bytes > self._memory_bytes and len(self._packets) > 1:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        packet = self._packets.pop(self._oldest)
        self.first_sequence = max(self.first_sequence, self._sequences.pop(self._oldest) + 1)
        self._oldest += 1
        self.bytes -= packet.size
        self.first = packet.end

    @property
    def has_room(self) -> bool:
        """Whether memory allows for more (for outputs that are not in a log)."""
        return self.bytes < self._memory_bytes

    @property
    def has_room_unless_taken(self) -> bool:
        """Whether memory allows for more, or all is taken by those who may ask for it again.

        Who has got everything and needs it still waits for more: to wait for it would be for ever.
        """
        if self.has_room:
            return True
        connected = {each.name for each in self._cursors.values() if each.required}
        # Who is ahead, because this is made again, waits just as well.
        return self.lag() <= 0 and connected >= self.needed.keys()

    # --- subscribers -------------------------------------------------------------------------

    def subscribe(self, connection: int, name: str, position: int, *, required: bool) -> Cursor:
        """A subscriber is owed everything from `position` on."""
        cursor = Cursor(name, position, self._window_bytes, required)
        if position > self.first:
            cursor.seen = self.first_sequence  # all that it is owed is in memory
        self._cursors[connection] = cursor
        self._numbers[connection] = self._oldest
        if required:
            # Where it goes on says nothing of what its recovery may need again; its acks do.
            self.needed.setdefault(name, 0)
        return cursor

    def unsubscribe(self, connection: int) -> None:
        """A connection is gone."""
        self._cursors.pop(connection, None)
        self._numbers.pop(connection, None)

    def cursor(self, connection: int) -> Cursor | None:
        """The cursor of a connection."""
        return self._cursors.get(connection)

    @property
    def connections(self) -> Iterable[int]:
        """Who is connected."""
        return list(self._cursors)

    def connection_of(self, name: str) -> int | None:
        """The connection of the subscriber of that name."""
        return next((key for key, each in self._cursors.items() if each.name == name), None)

    def acked(self, connection: int, consumed: int, needed: int) -> None:
        """A subscriber has processed everything before `consumed`, and needs from `needed` on."""
        cursor = self._cursors[connection]
        cursor.consumed(consumed)
        if cursor.required:
            self.needed[cursor.name] = max(needed, self.needed.get(cursor.name, 0))

    @property
    def served(self) -> bool:
        """Whether everyone who is connected has been sent everything, the end included."""
        return all(each.told_end for each in self._cursors.values())

    def lag(self) -> int:
        """How many positions the slowest connected required subscriber is behind."""
        behind = [self.end - each.position for each in self._cursors.values() if each.required]
        return max(behind, default=0)

    def sendable(self, connection: int) -> Iterator[Packet]:
        """What may be sent to a connection now, in order; taken as sent."""
        cursor = self._cursors[connection]
        while cursor.backlog and cursor.has_room:
            packet = cursor.backlog.popleft()
            cursor.sent(packet)
            yield packet
        if cursor.backlog or cursor.reading or self._behind(cursor):
            return
        number = max(self._numbers[connection], self._oldest)
        while number < self._newest and cursor.has_room:
            yield from cursor.due(number)
            packet = self._packets[number]
            cursor.seen = max(cursor.seen, self._sequences[number] + 1)
            number += 1
            if packet.end > cursor.position or packet.start >= cursor.position:
                cursor.sent(packet)
                yield packet
        self._numbers[connection] = number
        if number == self._newest:
            yield from cursor.due(number)
        if number == self._newest and cursor.required and self.token > cursor.told_token:
            cursor.told_token = self.token
            yield Packet(self.end, self.end, watermark=self.token)
        if self.final and number == self._newest and not cursor.told_end:
            cursor.told_end = True
            yield Packet(self.end, self.end, final=True)

    def must_read(self, connection: int) -> int | None:
        """From where the log must be read for a connection that is behind memory, or None."""
        cursor = self._cursors[connection]
        if cursor.reading or cursor.backlog or not self._behind(cursor):
            return None
        return cursor.position if cursor.has_room else None

    def _behind(self, cursor: Cursor) -> bool:
        """Whether something that it is owed has left memory."""
        return cursor.position < self.first or cursor.seen < self.first_sequence

    def check_invariants(self) -> None:
        """What always holds between events; of a long queue all of it only now and then."""
        if len(self._packets) > _LONG and (self._oldest + self._newest) % _LONG:
            return
        at = self.first
        for number in range(self._oldest, self._newest):
            assert self._packets[number].start == at, "a gap in an output queue"
            at = self._packets[number].end
        assert at == self.end, "the queue does not reach its end"
        assert self.bytes == sum(packet.size for packet in self._packets.values())


def _stands_alone(packet: Packet) -> bool:
    """Whether it is no more than a watermark."""
    return packet.start == packet.end and packet.watermark is not None


def _outdates(packet: Packet, earlier: Packet) -> bool:
    """Whether whoever has this one need not have got the earlier one.

    That nobody need wait for a stream does not say how far its time has come.
    """
    at_one_place = (
        packet.start == earlier.start and _stands_alone(packet) and _stands_alone(earlier)
    )
    return at_one_place and (packet.watermark != IDLE or earlier.watermark == IDLE)

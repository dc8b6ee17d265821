"""The input channels of a fragment, merged into one line of turns.

Every stretch of a channel that a turn consumes takes as many positions of the fragment's own input
time as it covers.  A fragment with one channel has its channel's positions.  With several, chance
decides who comes next; the choice is recorded as a determinant (channel, first position, span) and
written in the frame of the next turn that leaves one, before any result that depends on it can
leave the node.  After a crash the recorded order is followed through the end of the log (tc).

A fragment that goes by the clock of the machine gets that as input, too: a tick takes one position,
and its determinant says in place of a channel's position what the clock showed.  Nobody else has to
keep it: after a crash ticks come from the recorded order.

The time of the whole is that of the channel that is furthest behind, but for those that said they
are idle.  When all are, so is the whole: whoever comes next must not wait for it either.

Where a stream comes back to the fragment, nobody waits for the time of the channel by which it
does: that is no more than what the fragment has told.  Only the end of time waits, until nothing
goes around any more; see `rounds`, and `docs/design/loops.md`.

A determinants section: columns channel, first, span of the turns since the frame before; then, per
channel, the next position and the watermark after this turn; on a cycle, what is known of rounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from rewake.log.columns import pack_columns, unpack_columns
from rewake.log.frame import Frame, Section, SectionKind
from rewake.model.errors import BadPeer, DamagedFrame, DamagedLog
from rewake.model.stream_event import END_OF_TIME, IDLE, NO_TIME, StreamEvent, no_tuples
from rewake.node.channels.frontiers import Frontiers
from rewake.node.channels.packets import event_of
from rewake.node.channels.rounds import Rounds, Step, is_token
from rewake.node.messages import Packet
from rewake.operators.columns.arrays import Int64s


class Determinant(NamedTuple):
    """A turn consumed `span` positions of a channel, from `first` on.

    The number behind the last channel is that of the clock: `first` is what it showed.
    """

    channel: int
    first: int
    span: int


_LONG: Final = 64


class Taken(NamedTuple):
    """What the next turn consumes: of which channel, there, and in the fragment's own time.

    `idle`: with it the last channel fell silent.  `token`: what leaves behind it.  A tick has no
    channel, and neither has what the fragment itself says.  `marker`: nothing is consumed; a
    protocol upstream says this behind all that was.  `last`: the channel ends with it.
    """

    channel: int | None
    there: StreamEvent
    here: StreamEvent
    idle: bool = False
    token: int | None = None
    marker: bytes = b""
    last: bool = False

    @property
    def passed_on(self) -> int | None:
        """What those who come next are told of time."""
        if self.here.is_tick:
            return None  # what the clock shows says nothing of event time
        return IDLE if self.idle else self.here.watermark


@dataclass(slots=True)
class _Channel:
    schema: pa.Schema
    # The input of the operator that its tuples go to.
    port: int = 0
    # Whether it brings what watermarks have passed: then it tells no time but its end.
    late: bool = False
    # Whether it comes from a node on a cycle with this one, and whether it closes a loop.
    inside: bool = False
    around: bool = False
    # The next position to arrive, and to be consumed: consumed <= expected.
    expected: int = 0
    consumed: int = 0
    watermark: int = NO_TIME
    # Whether nobody need wait for it at present.
    idle: bool = False
    waiting: deque[Packet | StreamEvent] = field(default_factory=deque)
    waiting_bytes: int = 0
    # Where the stream ends, once that has been said; `ended` once it has been consumed.
    final_at: int = -1
    ended: bool = False
    # Whether the next arrival may start earlier than expected and is not to be cut.
    whole: bool = False
    # Whether nothing is taken from it at present, because a protocol has asked for that.
    held: bool = False
    # How many of those that wait are markers.
    markers: int = 0

    @property
    def next_is_marker(self) -> bool:
        """Whether a marker is all that comes before the rest."""
        return self.markers > 0 and is_marker(self.waiting[0])


def is_marker(item: Packet | StreamEvent) -> bool:
    """Whether it is a protocol's marker and no part of the stream."""
    return isinstance(item, Packet) and bool(item.marker)


def _size(item: Packet | StreamEvent) -> int:
    return item.size if isinstance(item, Packet) else int(item.batch.nbytes) + 64


class InputMerge:
    """Queues what arrives per channel and hands it out turn by turn.

    Invariants: what is handed out of a channel covers its positions without gap or repeat; while
    `script` lasts, the recorded order is followed.
    """

    def __init__(
        self,
        schemas: Sequence[pa.Schema],
        ports: Sequence[int] | None = None,
        *,
        late: Sequence[bool] | None = None,
        clocked: bool = False,
        repeats: bool = True,
        rounds: Rounds | None = None,
        inside: Sequence[bool] | None = None,
        around: Sequence[bool] | None = None,
    ) -> None:
        """`repeats`: whether a log records the order; without one nobody could ever repeat it.

        On a cycle: `inside` and `around` are those of its inputs; without `rounds` of its own it
        passes on what it hears of them.
        """
        ports = [0] * len(schemas) if ports is None else ports
        late = [False] * len(schemas) if late is None else late
        inside = [False] * len(schemas) if inside is None else inside
        around = [False] * len(schemas) if around is None else around
        described = zip(schemas, ports, late, inside, around, strict=True)
        self._channels = [_Channel(*each) for each in described]
        self.rounds = rounds
        self._clocked = clocked
        self._script: deque[Determinant] = deque()
        self._fresh: list[Determinant] = []
        self._repeats = repeats
        self._past = Frontiers(len(schemas))
        self._next = 0
        self._watermark = NO_TIME
        self._idle = False
        self.position = 0
        # By channel: what the log that this was rebuilt from had consumed.
        self._recovered = [0] * len(schemas)

    @property
    def several(self) -> bool:
        """Whether there is an order to record at all."""
        return len(self._channels) > 1 or self._clocked or self.rounds is not None

    # --- arrivals ----------------------------------------------------------------------------

    def go_to(self, channel: int, position: int) -> None:
        """The channel goes on at `position`: earlier (made again), or later (a gap); nothing waits.

        Only for fragments whose turns leave nothing behind that would contradict it.
        """
        each = self._channels[channel]
        each.waiting.clear()
        each.waiting_bytes = each.markers = 0
        each.held = False
        each.expected = each.consumed = position
        each.final_at, each.ended, each.idle = -1, False, False
        each.watermark = NO_TIME
        if not self.several:
            self.position = position
            # What is made again is made with its watermarks.
            self._watermark = NO_TIME

    def go_to_event_at(self, position: int) -> None:
        """The only channel goes on with the stream event that holds `position`, whole.

        Steps that leave tuples out must see the same stream events again to give the rest the same
        positions again.
        """
        self.go_to(0, position)
        self._channels[0].whole = True

    def bridge(self, channel: int, position: int) -> None:
        """The stream goes on at `position`, later than expected: what is between is lost."""
        self._channels[channel].expected = position

    def expected(self, channel: int) -> int:
        """The position a connection of this channel must deliver next."""
        return self._channels[channel].expected

    def recovered(self, channel: int) -> int:
        """How far the log that this was rebuilt from had consumed the channel."""
        return self._recovered[channel]

    def offer(self, channel: int, item: Packet | StreamEvent) -> bool:
        """Queue what arrived; False when it was known already.  Raises BadPeer for a gap."""
        each = self._channels[channel]
        if item.start > each.expected:
            raise BadPeer(
                f"channel {channel} delivered positions {item.start} to {item.end}, but "
                f"{each.expected} comes next: something in between is missing"
            )
        if each.whole and item.end > each.expected:
            # Earlier than asked for, or later, behind a gap: then that is still to be passed.
            each.expected = item.start
            each.consumed = self.position = min(each.consumed, item.start)
        each.whole = False
        final = isinstance(item, Packet) and item.final
        if final:
            each.final_at = item.end
        if item.end <= each.expected and item.start != each.expected:
            return False
        each.waiting.append(item)
        each.waiting_bytes += _size(item)
        each.markers += is_marker(item)
        each.expected = item.end
        return True

    def fell_silent(self, channel: int) -> None:
        """Nothing has come for long: nobody need wait for this channel."""
        expected = self._channels[channel].expected
        self.offer(channel, Packet(expected, expected, 0, IDLE))

    def end(self, channel: int) -> None:
        """The channel's source has ended where it stands now."""
        self.offer(channel, _final_at(self._channels[channel].expected))

    def announced_end(self, channel: int) -> bool:
        """Whether the channel is known to end, and where."""
        return self._channels[channel].final_at >= 0

    def waiting_bytes(self, channel: int) -> int:
        """Bytes that arrived and wait."""
        return self._channels[channel].waiting_bytes

    # --- a protocol's markers ----------------------------------------------------------------

    def hold(self, channel: int) -> None:
        """Take nothing more of this channel until `go_on`, but what was recorded; it waits."""
        self._channels[channel].held = True

    def go_on(self, channel: int) -> None:
        """Take of this channel again."""
        self._channels[channel].held = False

    def _marker(self) -> Taken | None:
        """The next marker that nothing is before; it is no turn, and nobody repeats it."""
        for channel, each in enumerate(self._channels):
            if each.next_is_marker and not (each.held and not self._script):
                item = each.waiting.popleft()
                assert isinstance(item, Packet)
                each.waiting_bytes -= _size(item)
                each.markers -= 1
                nothing = StreamEvent(self.position, no_tuples(each.schema))
                return Taken(channel, nothing, nothing, marker=item.marker)
        return None

    # --- turns -------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Whether anything has arrived that was not consumed."""
        return any(each.waiting for each in self._channels)

    def take(self, tick: int | None = None, *, inside: bool = False) -> Taken | None:
        """What the next turn consumes, or None when it has not arrived.

        `tick`: what the clock shows, if the fragment is to hear of it before anything else.
        `inside`: only from channels of a cycle, because there is no room for more from outside.
        """
        while (marker := self._marker()) is not None:
            # While the recorded order is followed, what a marker was behind is not what it is
            # behind now, and who waits for another input may wait for one that comes after it.
            if not self._script:
                return marker
        if self._script:
            return self._follow(inside)
        if tick is not None:
            return self._tick(tick, recorded=False)
        if self.rounds is not None and (said := self._say(self.rounds)) is not None:
            return said
        for step in range(len(self._channels)):
            channel = (self._next + step) % len(self._channels)
            each = self._channels[channel]
            if each.waiting and not each.held and (each.inside or not inside):
                self._next = channel + 1
                return self._consume(channel, None)
        return None

    def _say(self, rounds: Rounds) -> Taken | None:
        """What the fragment has to say of itself where its stream comes back to it."""
        step = rounds.step(all(each.ended or each.inside for each in self._channels))
        if step is None:
            return None
        nothing = StreamEvent(self.position, no_tuples(self._channels[0].schema))
        if step is Step.SEND:
            return Taken(None, nothing, nothing, token=rounds.token.packed())
        # Time ends here only if everybody else who is waited for has said so, too.
        here = self._here(0, nothing)
        return Taken(None, nothing, here)

    def _follow(self, inside: bool) -> Taken | None:
        channel, first, span = self._script[0]
        if channel == len(self._channels):
            self._script.popleft()
            return self._tick(first, recorded=True)
        each = self._channels[channel]
        if not each.waiting or (inside and not each.inside):
            return None
        taken = self._consume(channel, first + span, recorded=True)
        consumed = taken.there.end - first
        if consumed >= span:
            self._script.popleft()
        else:
            self._script[0] = Determinant(channel, first + consumed, span - consumed)
        return taken

    def _tick(self, now_ms: int, *, recorded: bool) -> Taken:
        event = StreamEvent.tick(self.position, self._channels[0].schema, now_ms)
        self.position = event.end
        self._note(event.start, Determinant(len(self._channels), now_ms, 1), recorded=recorded)
        return Taken(None, event, event)

    def _consume(self, channel: int, limit: int | None, *, recorded: bool = False) -> Taken:
        """The head of a channel's queue, cut to what is new and lies before `limit`."""
        each = self._channels[channel]
        item = each.waiting.popleft()
        each.waiting_bytes -= _size(item)
        event = event_of(item, each.schema) if isinstance(item, Packet) else item
        token = event.watermark if is_token(event.watermark) else None
        if token is not None:
            event = replace(event, watermark=None)
        if event.start < each.consumed:
            event = event.split(each.consumed)[1]
        if event.start > each.consumed:
            # What lies between was lost upstream; its positions pass all the same.
            event = replace(event, start=each.consumed)
        if limit is not None and event.end > limit:
            event, rest = event.split(limit)
            each.waiting.appendleft(rest)
            each.waiting_bytes += _size(rest)
        if token is None:
            span = event.end - each.consumed
            self._note(self.position, Determinant(channel, each.consumed, span), recorded=recorded)
        each.consumed = event.end
        if event.watermark is not None or event.batch.num_rows:
            each.idle = event.watermark == IDLE
        if event.watermark is not None and not (each.idle or each.late):
            each.watermark = max(each.watermark, event.watermark)
        last = isinstance(item, Packet) and item.final
        if last:
            each.ended, each.idle = True, False
            each.watermark = END_OF_TIME
        here = self._here(channel, event)
        was_idle, self._idle = self._idle, self._all_idle()
        if self.rounds is not None:
            self._tell_rounds(self.rounds, channel, token, event, here)
            token = None
        fell_idle = self._idle and not was_idle
        token = token if each.inside else None
        return Taken(channel, event, here, fell_idle, token, last=last)

    def _tell_rounds(
        self, rounds: Rounds, channel: int, token: int | None, there: StreamEvent, here: StreamEvent
    ) -> None:
        if token is not None:
            rounds.heard(channel, token)
        elif there.batch.num_rows or there.watermark is not None or here.watermark is not None:
            rounds.moved()
        if self._channels[channel].ended:
            rounds.ended(channel)

    def _all_idle(self) -> bool:
        """Whether every channel that may still bring something is idle."""
        open_ones = [each for each in self._channels if not (each.ended or each.around)]
        return bool(open_ones) and all(each.idle for each in open_ones)

    def _time(self) -> int:
        """How far time has come in all channels that are waited for."""
        if self._all_idle():
            return self._watermark
        waited = (each for each in self._channels if not (each.idle or each.around))
        time = min(each.watermark for each in waited)
        holds_end = self.rounds is not None and self.rounds.holds_end
        return self._watermark if holds_end and time == END_OF_TIME else time

    def _here(self, channel: int, event: StreamEvent) -> StreamEvent:
        start, span = self.position, event.end - event.start
        self.position += span
        watermark = self._time()
        passed = watermark if watermark > self._watermark else None
        self._watermark = max(self._watermark, watermark)
        position, port = self.position - event.batch.num_rows, self._channels[channel].port
        return StreamEvent(position, event.batch, passed, start, port)

    def _note(self, start: int, determinant: Determinant, *, recorded: bool) -> None:
        if not self.several or not self._repeats:
            return
        if not recorded:
            self._fresh.append(determinant)
        channel = determinant.channel if determinant.channel < len(self._channels) else None
        self._past.note(start, channel, [each.consumed for each in self._channels])

    @property
    def unwritten(self) -> int:
        """How many determinants no frame holds yet."""
        return len(self._fresh)

    @property
    def remembered(self) -> int:
        """How many turns it knows of, for what is needed again and for the next frame."""
        return len(self._fresh) + len(self._past)

    @property
    def following(self) -> bool:
        """Whether recorded turns are still ahead."""
        return bool(self._script)

    @property
    def ended(self) -> bool:
        """Whether every channel has ended and all of it is consumed."""
        if self.rounds is not None and self.rounds.over:
            return not (self._script or self.waiting)
        return all(each.ended and not each.waiting for each in self._channels)

    def consumed(self, channel: int) -> int:
        """The channel's next position to be consumed."""
        return self._channels[channel].consumed

    def needed(self, position: int) -> list[int]:
        """Per channel: from where it must be delivered again to repeat the turns from `position`.

        Positions only rise from call to call: what lies before is forgotten.
        """
        if not self.several:
            return [position]
        if position >= self.position:
            self._past.forget()
        return self._past.needed(position) or [each.consumed for each in self._channels]

    # --- determinants ------------------------------------------------------------------------

    def section(self) -> Section | None:
        """The determinants since the last call and the frontier, for the frame of this turn."""
        if not self.several:
            return None
        fresh = np.array(self._fresh, np.int64).reshape(-1, 3)
        self._fresh = []
        frontier = np.array([each.consumed for each in self._channels], np.int64)
        watermarks = np.array([each.watermark for each in self._channels], np.int64)
        columns = [fresh[:, 0], fresh[:, 1], fresh[:, 2], frontier, watermarks]
        if self.rounds is not None:
            columns.append(np.array(self.rounds.kept(), np.int64))
        return Section(SectionKind.DETERMINANTS, pack_columns(columns))

    def recover(self, frames: Sequence[Frame], position: int) -> list[int]:
        """Go back to `position`; `frames`, newest first, reach back to it.  Where channels start.

        The turns from `position` through the newest frame will be taken as they were recorded.
        """
        self.position = position
        if not self.several:
            self._start_at([position])
            self._recovered = [frames[0].t_end + 1 if frames else position]
            return [position]
        if not frames:
            self._start_at([0] * len(self._channels))
            return [0] * len(self._channels)
        starts = self._read_script(frames, position)
        self._start_at(starts)
        return starts

    def go_back(self, position: int, watermark: int, reached: int) -> list[int]:
        """Go back on the only channel to where time had come this far; it had come to `reached`.

        No frame says in which order input was taken: there is but one.
        """
        assert not self.several, "the order in which inputs met is nowhere recorded"
        self.position = position
        self._start_at([position])
        self._channels[0].watermark = self._watermark = watermark
        self._recovered = [reached]
        return [position]

    def _read_script(self, frames: Sequence[Frame], position: int) -> list[int]:
        newest = self._columns_of(frames[0])
        if self.rounds is not None:
            self.rounds.go_on(newest[5].tolist())
        starts = [int(each) for each in newest[3]]
        self._recovered = list(starts)
        reached = frames[0].t_end + 1
        script: deque[Determinant] = deque()
        for frame in frames:
            channels, firsts, spans, _, watermarks = self._columns_of(frame)[:5]
            if frame.t_end < position:
                self._restore_watermarks(watermarks)
                break
            for channel, first, span in zip(
                channels[::-1].tolist(), firsts[::-1].tolist(), spans[::-1].tolist(), strict=True
            ):
                if reached <= position:
                    break
                if not span:
                    continue  # a watermark alone: it changed nothing here, and may not come again
                reached -= span
                cut = max(0, position - reached)
                if channel == len(self._channels):
                    script.appendleft(Determinant(channel, first, span))
                    continue
                script.appendleft(Determinant(channel, first + cut, span - cut))
                starts[channel] = first + cut
        if reached > position:
            raise DamagedLog(
                f"the log records the order of input from {reached} on, but {position} is needed: "
                "it was trimmed too far; restore the older segments",
                segment=frames[-1].segment,
                offset=frames[-1].offset,
                sequence=frames[-1].sequence,
            )
        self._script = script
        return starts

    def _restore_watermarks(self, watermarks: Int64s) -> None:
        for each, watermark in zip(self._channels, watermarks, strict=True):
            each.watermark = int(watermark)
        self._watermark = self._time()

    def _columns_of(self, frame: Frame) -> list[Int64s]:
        payload = frame.section(SectionKind.DETERMINANTS)
        columns = unpack_columns(payload) if payload is not None else []
        count = len(self._channels)
        known = count + self._clocked
        sizes = [column.size for column in columns]
        of_rounds = [] if self.rounds is None else [self.rounds.size]
        if (
            len(columns) != 5 + len(of_rounds)
            or any(column.dtype != np.int64 for column in columns)
            or sizes != [sizes[0]] * 3 + [count] * 2 + of_rounds
            or (sizes[0] and not 0 <= int(columns[0].min()) <= int(columns[0].max()) < known)
            or np.any(columns[2][columns[0] == count] != 1)
        ):
            raise DamagedFrame(
                f"frame {frame.sequence} has no determinants of {count} channels; the log belongs "
                "to another query"
            )
        return columns

    def _start_at(self, positions: Sequence[int]) -> None:
        for each, position in zip(self._channels, positions, strict=True):
            each.expected = each.consumed = position

    def check_invariants(self) -> None:
        """What always holds between turns."""
        for each in self._channels:
            assert each.consumed <= each.expected, "consumed what has not arrived"
            waiting = each.waiting
            if len(waiting) > _LONG and len(waiting) % _LONG:
                continue  # all of them now and then: after every turn it would be a square
            assert each.waiting_bytes == sum(_size(item) for item in waiting)
            assert each.markers == sum(is_marker(item) for item in waiting)
        if not self.several:
            assert self._channels[0].consumed == self.position, "two times in one channel"


def consumed_by(frame: Frame) -> list[int]:
    """Per channel, what a node had consumed after the turn of a frame."""
    payload = frame.section(SectionKind.DETERMINANTS)
    if payload is None:
        return [frame.t_end + 1]
    return [int(each) for each in unpack_columns(payload)[3]]


def _final_at(position: int) -> Packet:
    return Packet(position, position, final=True)

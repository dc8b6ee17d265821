"""A node: one shard of one fragment, fed by events, answering with commands.

The same class runs in a Spark task and in the simulator.  It touches no file, socket or clock.

The host's duties, in this order:

1. Get an epoch from the coordinator.  If the plan logs: open the log as that epoch (which fences
   the predecessor), and give `Node.recover` a reader of its frames, newest first.
2. Perform the commands of `start`, then deliver events as they come and perform, in order, the
   commands that each returns.  An upstream's `Begins` is `began`, a packet or a source's stream
   event is `arrived`, a broken connection is `lost`.  What producers say goes to `producers`.
3. Whenever `ready`, call `work`: one turn.  Read a source only while `wants` it.
4. After `Append`, call `durable` with the number of frames that are.  Nothing of a turn is sent
   before that: the node holds it back itself.
5. When the log reports that it is fenced, end the process without performing anything more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from rewake.graph.plan.plan import NodePlan
from rewake.log.files.lineage import Lineage
from rewake.log.frame import Frame, SectionKind, TurnRecord
from rewake.model.errors import UsageError
from rewake.model.stream_event import IDLE, NO_TIME, StreamEvent
from rewake.node.channels.input_merge import InputMerge, Taken
from rewake.node.channels.origins import SILENT, Origins, SinkOrigins
from rewake.node.channels.packets import packet_of, punctuation_section
from rewake.node.channels.producers import Note, Producers
from rewake.node.channels.silence import Silence
from rewake.node.channels.subscriptions import Kept, Subscriptions
from rewake.node.commands import (
    Acknowledge,
    Append,
    Connect,
    Deliver,
    Finish,
    NodeCommand,
    Trim,
)
from rewake.node.frame_marks import FrameMarks
from rewake.node.lateness import Lateness
from rewake.node.limits import NodeLimits
from rewake.node.messages import Ack, Packet, Subscribe
from rewake.operators.stateful import Delaying, by_machine_clock
from rewake.recovery.approach import Emissions, Foretelling, Recovery, result_sections
from rewake.recovery.promises.rates import RecoveryRates

_AT_ANY_POSITION = -1
# Amnesia: each life of a node numbers its output from a line of its own, so that nothing it lost
# can be mistaken for something it says now.
_POSITIONS_PER_LIFE = 1 << 40
# What a node remembers grows neither with its turns nor with how far a subscriber is behind.
_MOST_UNWRITTEN = 1024


class _Pending(NamedTuple):
    """A turn that was appended and is not durable yet."""

    sequence: int
    end: int
    bytes: int
    packets: list[Packet] | None
    # What recovery would need after this turn: input from here on, frames from here on.
    needs: tuple[list[int], int] | None
    note: Note | None


class Node:
    """One shard of one fragment."""

    def __init__(
        self,
        plan: NodePlan,
        epoch: int,
        *,
        recovery: Recovery | None = None,
        frames: Sequence[Frame] = (),
        next_sequence: int = 0,
        next_position: int = 0,
        limits: NodeLimits | None = None,
        lineage: Lineage | None = None,
        origins: Mapping[str, Any] | None = None,
    ) -> None:
        self.plan = plan
        self.epoch = epoch
        self.origins = Origins(plan, origins)
        self.limits = limits or NodeLimits()
        operator = None if recovery is None else recovery.operator
        self._clocked = by_machine_clock(operator)
        self.merge = InputMerge(
            [each.schema for each in plan.inputs],
            [each.port for each in plan.inputs],
            late=[each.late for each in plan.inputs],
            clocked=self._clocked is not None,
            repeats=plan.logs,
        )
        # An entry's: who writes, and what the turn that is being taken does for whom.
        self.producers: Producers | None = None
        if any(each.produced for each in plan.inputs):
            (schema,) = plan.input_schemas
            self.producers = Producers(self.merge, schema, logs=plan.logs)
        self._note: Note | None = None
        self.recovery = recovery
        self._sequence = next_sequence
        self._end = next_position if plan.logs else epoch * _POSITIONS_PER_LIFE
        self._starts = self.merge.recover(frames, 0 if recovery is None else recovery.position)
        kept = Kept.IN_LOG if plan.logs else Kept.NOWHERE
        if plan.transparent:
            kept, self._end = Kept.UPSTREAM, 0
        self.outputs = Subscriptions(
            [each.consumers for each in plan.outputs],
            self._end,
            epoch=epoch,
            kept=kept,
            limits=self.limits,
            sequence=next_sequence if plan.logs else 0,
            lineage=lineage,
            rewind=self._rewind,
        )
        self._durable_end = self._end
        self._pending: deque[_Pending] = deque()
        self._pending_bytes = 0
        self._needed = list(self._starts)
        self._delivered = list(self._starts)
        self._frame_marks = FrameMarks()
        self.turns = 0
        # Tuples, CHECKs and their bytes of the last turn, for who measures it.
        self._last_turn = (0, 0, 0)
        # A turn that could not be taken yet, because a system outside did not answer.
        self._held: Taken | None = None
        self._finished = False
        self._rewound = False
        delay = operator.delay if isinstance(operator, Delaying) else 0
        # How far results may be behind the clock; -1: any far.
        self._delay = -1 if delay is None else delay
        self._silence = Silence()
        self.tuples_in = self.tuples_out = 0
        self._lateness = Lateness(plan.program, 0 if operator is None else operator.late_tuples)
        # The outputs of tuples that a function failed for, and how many left by them.
        self._dead_outputs = {n for n, each in enumerate(plan.outputs) if each.dead}
        self.dead_letters = 0

    @classmethod
    def recover(
        cls,
        plan: NodePlan,
        epoch: int,
        frames: Iterable[Frame] = (),
        *,
        next_sequence: int = 0,
        next_position: int = 0,
        limits: NodeLimits | None = None,
        lineage: Lineage | None = None,
        origins: Mapping[str, Any] | None = None,
    ) -> Node:
        """Rebuild from the node's own log, given newest frame first (none: a new node).

        `lineage` is that of the log, `origins` what the last `Remember` held.
        """
        if plan.transparent or plan.sink is not None:
            return cls(plan, epoch, limits=limits, origins=origins)
        seen: list[Frame] = []
        frames = iter(frames)
        operator = plan.program.operator(*plan.input_schemas)
        recovery = plan.approach.build(operator, plan.program.emit, _noting(frames, seen))
        node = cls(
            plan,
            epoch,
            recovery=recovery,
            frames=seen,
            next_sequence=next_sequence,
            next_position=next_position,
            limits=limits,
            lineage=lineage,
            origins=origins,
        )
        if node.producers is not None and plan.logs:
            node.producers.recover(chain(seen, frames))
        return node

    # --- upstream ----------------------------------------------------------------------------

    def start(self, committed: Sequence[int] = (), sink: SinkOrigins = SILENT) -> list[NodeCommand]:
        """Begin; `committed` says per channel how far a sink's commits reach.

        Raises HistoryMismatch when `sink` says that it is another folder's.
        """
        if self.plan.sink is not None:
            self.origins.found(sink, committed)
            for channel, position in enumerate(committed):
                self.merge.go_to(channel, position)
            self._starts = self._delivered = self._needed = list(committed)
        if self.plan.transparent:
            return []  # what to produce is what somebody asks for
        if self.producers is not None:
            return []  # they connect
        if not self.plan.approach.logs and self.recovery is not None and self.epoch > 1:
            # Without a state there is no past to continue: take what comes next.
            return [Connect(channel, _AT_ANY_POSITION) for channel in range(len(self._starts))]
        return [Connect(channel, position) for channel, position in enumerate(self._starts)]

    def began(
        self, channel: int, position: int, lineage: Lineage | None = None
    ) -> list[NodeCommand]:
        """An upstream accepted: it delivers from `position` on; beyond what was asked is a gap.

        Raises HistoryMismatch when its log is not the one that this node has consumed.
        """
        if lineage is not None and self.plan.transparent:
            return self.outputs.inherit(lineage)
        commands: list[NodeCommand] = []
        if lineage is not None:
            reached = max(self.merge.expected(channel), self.merge.recovered(channel))
            commands += self.origins.told(channel, lineage, reached)
        if position <= self.merge.expected(channel):
            return commands
        if self.tuples_in or self.plan.approach.logs or self.recovery is None:
            self.merge.bridge(channel, position)
        else:
            self.merge.go_to(channel, position)
            self.recovery.position = self.merge.position
        return commands

    def lost(self, channel: int) -> list[NodeCommand]:
        """The connection to an upstream broke: ask for what has not arrived."""
        if self.plan.transparent and not self.outputs.started:
            return []
        return [Connect(channel, self.merge.expected(channel))]

    def arrived(self, channel: int, item: Packet | StreamEvent) -> list[NodeCommand]:
        """Input has arrived; it waits for its turn."""
        self.merge.offer(channel, item)
        return []

    def source_ended(self, channel: int) -> list[NodeCommand]:
        """The source of a channel has nothing more, for ever."""
        self.merge.end(channel)
        return []

    def wants(self, channel: int) -> bool:
        """Whether a source of this channel should be read."""
        if self.plan.transparent and not self.outputs.started:
            return False
        return self.merge.waiting_bytes(channel) < self.limits.input_bytes

    def _rewind(self, position: int) -> list[NodeCommand]:
        self.merge.go_to_event_at(position)
        self.outputs.restart(position)
        self._rewound = True
        self._finished = False
        return [Connect(0, position)]

    # --- turns -------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether output may be produced; then `work` takes a turn if there is input."""
        return (
            self._pending_bytes < self.limits.pending_bytes
            and len(self._pending) < self.limits.pending_frames
            and self.outputs.has_room
        )

    def work(self, now_ms: float, wall_ms: float | None = None) -> list[NodeCommand]:
        """Take one turn; nothing when no input has arrived or there is no room for output.

        `wall_ms` is the time of day, in milliseconds since 1970, for fragments that go by it.

        Raises `Unavailable` when a system outside that the turn needs does not answer: nothing has
        changed, and the same turn is taken when it is called again.
        """
        if not self.ready:
            return []
        taken = self._held or self.merge.take(self._tick_due(wall_ms))
        if taken is None:
            return self._perhaps_finish()
        if self._held is None:
            self.tuples_in += taken.there.batch.num_rows
            self._held = taken
            self._note = None if self.producers is None else self.producers.taken()
        if self.plan.sink is not None:
            assert taken.channel is not None, "a sink has no clock"
            commands: list[NodeCommand] = [Deliver(taken.channel, taken.there)]
        elif self.recovery is None:
            commands = self._pass_through(taken)
        else:
            commands = self._turn(taken, now_ms)
        self._held = None
        self.turns += 1
        if taken.channel is not None:
            commands += self._acknowledge(taken.channel)
        return commands + self._perhaps_finish()

    def _tick_due(self, wall_ms: float | None) -> int | None:
        """What the fragment must hear of the clock now: before input, and when a timer is due.

        A clock that was set back is not heard until it is where it was.
        """
        if self._clocked is None or wall_ms is None or self.merge.ended:
            return None
        assert self.recovery is not None, "nobody to hear of time"
        now = int(wall_ms)
        heard = max(self.recovery.operator.clock, -self.limits.clock_resolution_ms)
        if now - heard < self.limits.clock_resolution_ms:
            return None
        return now if self.merge.waiting or self._clocked.alarm <= now else None

    def took(self, rates: RecoveryRates, elapsed_us: float) -> None:
        """The last turn took so long: what its tuples and CHECKs cost."""
        tuples, checks, check_bytes = self._last_turn
        if checks:
            rates.checked(checks, elapsed_us - tuples * rates.work_us, check_bytes)
        elif tuples:
            rates.processed(tuples, elapsed_us)
        self._last_turn = (0, 0, 0)

    def _pass_through(self, taken: Taken) -> list[NodeCommand]:
        event = replace(taken.here, watermark=taken.passed_on)
        if self._rewound:
            self._rewound = False
            self.outputs.restart(event.start)
        emissions = self.plan.program.apply(event.batch, event.end - event.start)
        packets = [Packet(event.start, event.end, 0, event.watermark)] * len(self.plan.outputs)
        self._count_dead(emissions)
        for output, batch in emissions:
            packets[output] = packet_of(event.holding(batch))
            self.tuples_out += batch.num_rows
        return self.outputs.offer(packets)

    def _turn(self, taken: Taken, now_ms: float) -> list[NodeCommand]:
        assert self.recovery is not None
        replayed = self.recovery.recovering
        turn = self.recovery.turn(taken.here, now_ms)
        self._last_turn = (int(taken.here.batch.num_rows), turn.checks, turn.check_bytes)
        rows = sum(batch.num_rows for _, batch in turn.outputs)
        self.tuples_out += rows
        self._count_dead(turn.outputs)
        watermark = None if replayed else self._told(taken.passed_on)
        if not self.plan.logs:
            commands = self._forward_unlogged(turn.outputs, rows, watermark)
            return commands if self._note is None else commands + self._tell_producers([self._note])
        record = turn.record
        noted = self._note is not None or self._much_unwritten
        if record is None and (rows or watermark is not None or noted):
            record = self.recovery.bare_record()
            sections = (*record.sections, *result_sections(turn.outputs))
            record = record._replace(tuples=rows, sections=sections)
        return [] if record is None else self._append(record, watermark)

    @property
    def _much_unwritten(self) -> bool:
        """Whether so many turns in a row left no frame that their order must go to the log."""
        assert self.recovery is not None
        return self.merge.unwritten >= _MOST_UNWRITTEN and not self.recovery.recovering

    def _count_dead(self, outputs: Emissions) -> None:
        if self._dead_outputs:
            rows = (batch.num_rows for number, batch in outputs if number in self._dead_outputs)
            self.dead_letters += sum(rows)

    def _told(self, watermark: int | None) -> int | None:
        """What those who come next are told of time: no more than that results may be behind."""
        if watermark is None or watermark >= IDLE or not self._delay:
            return watermark
        return None if self._delay < 0 else max(watermark - self._delay, NO_TIME)

    def _forward_unlogged(
        self, outputs: Emissions, rows: int, watermark: int | None
    ) -> list[NodeCommand]:
        if not rows and watermark is None:
            return []
        start, self._end = self._end, self._end + rows
        packets = [Packet(start, self._end, 0, watermark)] * len(self.plan.outputs)
        for output, batch in outputs:
            payload = batch.serialize()
            packets[output] = Packet(start, self._end, batch.num_rows, watermark, payload)
        return self.outputs.offer(packets)

    def _append(self, record: TurnRecord, watermark: int | None) -> list[NodeCommand]:
        sections = list(record.sections)
        determinants = self.merge.section()
        if determinants is not None:
            sections.append(determinants)
        if self.producers is not None:
            sections.append(self.producers.section())
        if watermark is not None:
            sections.append(punctuation_section(watermark))
        record = record._replace(sections=tuple(sections))
        start, self._end = self._end, self._end + record.tuples
        packets = None
        if record.tuples or watermark is not None:
            packets = self._packets_of(record, start, watermark)
        size = sum(len(section.payload) for section in sections)
        sequence, self._sequence = self._sequence, self._sequence + 1
        needs = self._needs() if sequence % self.limits.turns_per_trim == 0 else None
        self._pending.append(_Pending(sequence, self._end, size, packets, needs, self._note))
        self._pending_bytes += size
        return [Append(record)]

    def _packets_of(self, record: TurnRecord, start: int, watermark: int | None) -> list[Packet]:
        packets = [Packet(start, self._end, 0, watermark)] * len(self.plan.outputs)
        for kind, payload, output in record.sections:
            if kind == SectionKind.RESULTS:
                packets[output] = Packet(start, self._end, -1, watermark, payload)
        return packets

    def _needs(self) -> tuple[list[int], int]:
        assert self.recovery is not None
        inputs = self.merge.needed(self.recovery.acknowledged + 1)
        frames = self.recovery.frames_needed
        if self.producers is not None:
            frames = max(frames, self.producers.frames_needed)
        return inputs, self._sequence - frames

    def _tell_producers(self, notes: Iterable[Note]) -> list[NodeCommand]:
        return [] if self.producers is None else self.producers.durable(notes)

    # --- durability --------------------------------------------------------------------------

    def durable(self, frames: int) -> list[NodeCommand]:
        """Every frame with a sequence below `frames` is durable: its results may go."""
        commands: list[NodeCommand] = []
        notes: list[Note] = []
        needs = None
        while self._pending and self._pending[0].sequence < frames:
            turn = self._pending.popleft()
            self._pending_bytes -= turn.bytes
            self._durable_end = turn.end
            if turn.packets is not None:
                commands += self.outputs.offer(turn.packets, turn.sequence)
            if turn.note is not None:
                notes.append(turn.note)
            if turn.needs is not None:
                needs = turn.needs
                self._frame_marks.put(turn.end, turn.sequence + 1)
        commands += self._tell_producers(notes)
        if needs is not None:
            commands += self._release(*needs)
        return commands + self._perhaps_finish()

    def tick(self, now_ms: float) -> list[NodeCommand]:
        """Once in a while: nothing may stay unsaid because no further turn comes to say it."""
        self._notice_silence(now_ms)
        if self.recovery is None or not self.plan.logs or self._pending or self.recovering:
            return self._perhaps_finish()
        if self._frame_marks.last != self._sequence:
            self._frame_marks.put(self._end, self._sequence)
        return self._release(*self._needs()) + self._perhaps_finish()

    def _notice_silence(self, now_ms: float) -> None:
        """Tell of inputs from outside that brought nothing for as long as they may be silent."""
        for channel, each in enumerate(self.plan.inputs):
            if each.idle_after_ms is None or not self.wants(channel):
                continue
            expected = self.merge.expected(channel)
            if self._silence.begins(channel, expected, now_ms, each.idle_after_ms) and (
                not self.merge.announced_end(channel)
            ):
                (self.producers or self.merge).fell_silent(channel)

    def _release(self, inputs: list[int], own_frames: int) -> list[NodeCommand]:
        """Tell upstream what is not needed any more, and trim what nobody needs."""
        self._needed = inputs
        commands: list[NodeCommand] = [
            Acknowledge(channel, Ack(self.merge.consumed(channel), needed))
            for channel, needed in enumerate(inputs)
        ]
        before = self._frame_marks.trimmable(self.outputs.needed(), own_frames)
        if before:
            commands.append(Trim(before))
        return commands

    def delivered(self, channel: int, position: int) -> list[NodeCommand]:
        """A sink has committed everything of a channel before `position`."""
        self._delivered[channel] = self._needed[channel] = position
        ack = Ack(self.merge.consumed(channel), position)
        return [Acknowledge(channel, ack), *self._perhaps_finish()]

    def _acknowledge(self, channel: int) -> list[NodeCommand]:
        """Free the upstream's window, and say what is not needed again."""
        consumed = self.merge.consumed(channel)
        if self.plan.transparent:
            self._needed[channel] = min(self.outputs.needed(), consumed)
        elif not self.plan.logs and self.plan.sink is None:
            self._needed[channel] = consumed
        return [Acknowledge(channel, Ack(consumed, self._needed[channel]))]

    # --- the end of a finite stream ----------------------------------------------------------

    def _perhaps_finish(self) -> list[NodeCommand]:
        if self._finished or self._pending or self._held or not self.merge.ended:
            return []
        if self.plan.sink is not None and self._delivered != [
            self.merge.consumed(channel) for channel in range(len(self._delivered))
        ]:
            return []
        self._finished = True
        return [*self.outputs.finish(), Finish()]

    @property
    def finished(self) -> bool:
        """Whether all of a finite stream has been processed, durably."""
        return self._finished

    # --- downstream --------------------------------------------------------------------------

    def subscribed(self, connection: int, message: Subscribe) -> list[NodeCommand]:
        """A downstream or a client wants an output."""
        return self.outputs.subscribed(connection, message)

    def unsubscribed(self, connection: int) -> list[NodeCommand]:
        """Its connection is gone."""
        return self.outputs.unsubscribed(connection)

    def acked(self, connection: int, ack: Ack) -> list[NodeCommand]:
        """It made progress."""
        return self.outputs.acked(connection, ack)

    def read_back(self, connection: int, frames: Iterable[Frame]) -> list[NodeCommand]:
        """The frames that `ReadLog` asked for."""
        return self.outputs.read_back(connection, frames, self._durable_end)

    # --- for people and tests ----------------------------------------------------------------

    @property
    def recovering(self) -> bool:
        """Whether input that the log has the effects of is still being replayed."""
        return self.recovery is not None and self.recovery.recovering

    @property
    def replay_tuples(self) -> int:
        """How many positions are still to be replayed."""
        if self.foretelling is None:
            return 0
        return max(self.foretelling.replay_through + 1 - self.merge.position, 0)

    @property
    def foretelling(self) -> Foretelling | None:
        """Its recovery, if that knows beforehand what a crash would cost."""
        return self.recovery if isinstance(self.recovery, Foretelling) else None

    def early(self) -> Packet:
        """What open windows come to so far; it starts at the input position, and is no output."""
        if self.recovery is None or self.recovering:
            raise UsageError(
                f"node {self.plan.name!r} has no early results now: it keeps no windows, or is "
                "still being rebuilt"
            )
        batch = self.plan.program.early(self.recovery.operator)
        start = self.merge.position
        if batch is None or not batch.num_rows:
            return Packet(start, start)
        rows = int(batch.num_rows)
        return Packet(start, start + rows, rows, None, batch.serialize())

    def progress(self) -> dict[str, float]:
        """Figures of the moment."""
        figures: dict[str, float] = {
            "tuples_in": self.tuples_in,
            "tuples_out": self.tuples_out,
            "input_position": self.merge.position,
            "output_position": self._end,
            "pending_bytes": self._pending_bytes,
            "lag": self.outputs.lag(),
            "turns": self.turns,
            "remembered_turns": self.merge.remembered + len(self._frame_marks),
        }
        if self.recovery is not None:
            late = self.recovery.operator.late_tuples
            figures |= self.recovery.progress() | self._lateness.figures(late, self.tuples_in)
        if self._dead_outputs:
            figures["dead_letters"] = self.dead_letters
        return figures

    def check_invariants(self) -> None:
        """What always holds between events."""
        self.merge.check_invariants()
        self.outputs.check_invariants()
        if self.producers is not None:
            self.producers.check_invariants()
        assert self._pending_bytes == sum(turn.bytes for turn in self._pending)
        if self.recovery is not None:
            held = 0 if self._held is None else self._held.here.end - self._held.here.start
            assert self.recovery.position + held == self.merge.position, "two times in one fragment"
            self.recovery.check_invariants()


def _noting(frames: Iterable[Frame], seen: list[Frame]) -> Iterator[Frame]:
    for frame in frames:
        seen.append(frame)
        yield frame

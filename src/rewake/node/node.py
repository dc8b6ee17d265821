"""A node: one shard of one fragment, fed by events, answering with commands.

The same class runs in a Spark task and in the simulator.  It touches no file, socket or clock.

The host's duties, in this order:

1. Get an epoch from the coordinator.  If the plan logs: open the log as that epoch (which fences
   the predecessor), and make the node of what is in it, newest frame first (`LogSoFar`).  Whoever
   is promoted makes it of what it held while it stood by (`StandingBy.promoted`); whoever was
   welcomed with a bookmark, of that; whoever has nothing, of nothing.
2. Perform the commands of `start`, then deliver events as they come and perform, in order, the
   commands that each returns.  An upstream's `Begins` is `began`, a packet or a source's stream
   event is `arrived`, a broken connection is `lost`.  What producers say goes to `producers`.
3. Whenever `ready`, call `work`: one turn.  Read a source only while `wants` it.  Call `tick` every
   now and then, and `woke` once for each `Wake`, when it is due.
4. After `Append`, call `durable` with the number of frames that are.  Nothing of a turn is sent
   before that: the node holds it back itself.
5. Of the node's other places: `joined` when one has connected, `heard` for what it says, in order,
   and `left` when the coordinator has said that it is lost, not when a link breaks.  (`Channels`
   does this, of what links and the coordinator say.)  What an `Announce` says of a bookmark is
   answered by the coordinator: then call `bookmark_kept`.
6. When the log reports that it is fenced, end the process without performing anything more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from rewake.graph.plan.plan import NodePlan
from rewake.log.files.lineage import Lineage
from rewake.log.frame import Frame
from rewake.model.errors import LoopGrows, UsageError
from rewake.model.stream_event import StreamEvent
from rewake.node.channels.input_merge import InputMerge, Taken
from rewake.node.channels.origins import SILENT, Origins, SinkOrigins
from rewake.node.channels.producers import Note, Producers
from rewake.node.channels.rounds import NO_TOKEN, Rounds
from rewake.node.channels.silence import Silence
from rewake.node.channels.subscriptions import Subscriptions
from rewake.node.commands import Connect, Finish, NodeCommand
from rewake.node.lateness import Lateness
from rewake.node.limits import NodeLimits
from rewake.node.messages import Ack, Packet, Subscribe
from rewake.node.protocols import LogSoFar, Protocol, Shell, protocol_of
from rewake.recovery.approach import Release
from rewake.recovery.bookmark import Bookmark
from rewake.recovery.promises.rates import RecoveryRates

NO_LOG_YET = LogSoFar()


class Node:
    """One shard of one fragment: a shell around its protocol."""

    def __init__(
        self,
        plan: NodePlan,
        epoch: int,
        past: LogSoFar = NO_LOG_YET,
        *,
        limits: NodeLimits | None = None,
        origins: Mapping[str, Any] | None = None,
    ) -> None:
        self.plan = plan
        self.epoch = epoch
        self.limits = limits or NodeLimits()
        self.origins = Origins(plan, origins)
        kind = self.protocol_of(plan)
        seen: list[Frame] = []
        frames = iter(past.frames)
        self.recovery = kind.rebuild(plan, _noting(frames, seen), past)
        operator = None if self.recovery is None else self.recovery.operator
        # The operator, if it goes by the clock of the machine.
        self._clocked = operator if operator is not None and operator.clocked else None
        self.merge = self._merge(kind)
        # An entry's: who writes.
        self.producers: Producers | None = None
        if any(each.produced for each in plan.inputs):
            (schema,) = plan.input_schemas
            self.producers = Producers(self.merge, schema, logs=kind.repeats)
        starts = self._starts(seen, past)
        self.outputs = self._outputs(kind, past)
        if self.merge.rounds is not None and self.merge.rounds.token != NO_TOKEN:
            self.outputs.tell(self.merge.rounds.token.packed())
        ends = (self.merge, self.outputs, self.producers)
        self._shell = Shell(plan, epoch, self.limits, *ends, self.recovery, starts)
        self.protocol = kind(self._shell, past)
        if self.producers is not None and kind.repeats:
            self.producers.recover(chain(seen, frames))
        self.turns = 0
        # A turn that could not be taken yet, because a system outside did not answer, and what it
        # does for a producer.
        self._held: Taken | None = None
        self._note: Note | None = None
        self._finished = False
        # Tuples that were added to what goes around while there was no room for more.
        self._added = 0
        self._silence = Silence()
        self._lateness = Lateness(plan.program, 0 if operator is None else operator.late_tuples)

    protocol_of = staticmethod(protocol_of)

    def _merge(self, kind: type[Protocol]) -> InputMerge:
        inputs, cycle = self.plan.inputs, self.plan.cycle
        # Who makes its output again from its input passes on what it hears, tokens too.
        takes_part = cycle is not None and kind.repeats
        return InputMerge(
            [each.schema for each in inputs],
            [each.port for each in inputs],
            late=[each.late for each in inputs],
            clocked=self._clocked is not None,
            repeats=kind.repeats,
            rounds=Rounds(inputs, cycle.heads) if cycle is not None and takes_part else None,
            inside=[each.inside for each in inputs],
            around=[each.around for each in inputs],
        )

    def _starts(self, frames: Sequence[Frame], past: LogSoFar) -> list[int]:
        """From where each input is needed."""
        if past.bookmark is not None:
            reached = past.bookmark.position
            return self.merge.go_back(past.bookmark.start, past.bookmark.start_watermark, reached)
        return self.merge.recover(frames, 0 if self.recovery is None else self.recovery.position)

    def _outputs(self, kind: type[Protocol], past: LogSoFar) -> Subscriptions:
        return Subscriptions(
            [each.consumers for each in self.plan.outputs],
            kind.first_position(self.epoch, past),
            epoch=self.epoch,
            kept=kind.kept,
            limits=self.limits,
            sequence=past.next_sequence,
            lineage=past.lineage,
            remade=self.plan.approach.release is Release.AT_ONCE,
            rewind=self._rewind,
        )

    # --- upstream ----------------------------------------------------------------------------

    def start(self, committed: Sequence[int] = (), sink: SinkOrigins = SILENT) -> list[NodeCommand]:
        """Begin; `committed` says per channel how far a sink's commits reach.

        Raises HistoryMismatch when `sink` says that it is another folder's.
        """
        if self.plan.sink is not None:
            self.origins.found(sink, committed)
        return self.protocol.start(committed)

    def began(
        self, channel: int, position: int, lineage: Lineage | None = None
    ) -> list[NodeCommand]:
        """An upstream accepted: it delivers from `position` on; beyond what was asked is a gap.

        Raises HistoryMismatch when its log is not the one that this node has consumed.
        """
        commands: list[NodeCommand] = []
        if lineage is not None:
            inherited = self.protocol.inherit(lineage)
            if inherited is not None:
                return inherited
            reached = max(self.merge.expected(channel), self.merge.recovered(channel))
            commands += self.origins.told(channel, lineage, reached)
        if position > self.merge.expected(channel):
            self.protocol.began(channel, position)
        return commands

    def lost(self, channel: int) -> list[NodeCommand]:
        """The connection to an upstream broke: ask for what has not arrived."""
        if not self.protocol.wants_input:
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
        if not self.protocol.wants_input:
            return False
        return self.merge.waiting_bytes(channel) < self.limits.input_bytes

    def _rewind(self, position: int) -> list[NodeCommand]:
        self._finished = False
        return self.protocol.rewind(position)

    # --- turns -------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether output may be produced; then `work` takes a turn if there is input.

        On a cycle those who read may be waiting for us: what goes around is always taken, and what
        it gives waits in the log.
        """
        return self.protocol.has_room and (self.outputs.has_room or self._on_cycle)

    @property
    def _on_cycle(self) -> bool:
        return self.merge.rounds is not None

    def work(self, now_ms: float, wall_ms: float | None = None) -> list[NodeCommand]:
        """Take one turn; nothing when no input has arrived or there is no room for output.

        `wall_ms` is the time of day, in milliseconds since 1970, for fragments that go by it.

        Raises `Unavailable` when a system outside that the turn needs does not answer: nothing has
        changed, and the same turn is taken when it is called again.
        """
        room = self.outputs.has_room
        if not self.protocol.has_room or not (room or self._on_cycle):
            return []
        taken = self._held or self.merge.take(self._tick_due(wall_ms), inside=not room)
        if taken is None:
            return self._perhaps_finish()
        if taken.marker and taken.channel is not None:
            self.turns += 1
            if self.recovering:  # what it would say of its output is behind later output now
                return self._perhaps_finish()
            return self.protocol.marked(taken.channel, taken.marker) + self._perhaps_finish()
        if self._held is None:
            self._shell.tuples_in += taken.there.batch.num_rows
            self._held = taken
            self._note = None if self.producers is None else self.producers.taken()
        before = self._shell.tuples_out
        commands = self.protocol.turn(taken, now_ms, self._note)
        self._added = 0 if room else self._added + self._shell.tuples_out - before
        self._check_growth()
        self._held = None
        self.turns += 1
        if taken.channel is not None:
            commands += self.protocol.acknowledge(taken.channel)
            if taken.last:
                commands += self.protocol.ended(taken.channel)
        return commands + self._perhaps_finish()

    def _check_growth(self) -> None:
        cycle = self.plan.cycle
        if cycle is not None and self._added > cycle.at_most:
            raise LoopGrows(
                f"node {self.plan.name!r} has added {self._added:,} tuples to its loop while there "
                f"was no room for more, and at most {cycle.at_most:,} are allowed: what goes "
                "around does not get less; let the steps on the loop drop tuples in the end, or "
                "raise at_most of the loop"
            )

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
        self.protocol.took(rates, elapsed_us)

    # --- what happens to what left -----------------------------------------------------------

    def durable(self, frames: int) -> list[NodeCommand]:
        """Every frame with a sequence below `frames` is durable: its results may go."""
        return self.protocol.durable(frames) + self._perhaps_finish()

    def delivered(self, channel: int, position: int) -> list[NodeCommand]:
        """A sink has committed everything of a channel before `position`."""
        return self.protocol.delivered(channel, position) + self._perhaps_finish()

    def tick(self, now_ms: float) -> list[NodeCommand]:
        """Once in a while: nothing may stay unsaid because no further turn comes to say it."""
        self._notice_silence(now_ms)
        return self.protocol.tick(now_ms) + self._perhaps_finish()

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

    def woke(self, now_ms: float) -> list[NodeCommand]:
        """What a `Wake` asked for is due."""
        return self.protocol.woke(now_ms) + self._perhaps_finish()

    def bookmark_kept(self, bookmark: Bookmark) -> list[NodeCommand]:
        """What a `KeepBookmark` asked for is durable."""
        return self.protocol.bookmark_kept(bookmark)

    # --- other places of this node -----------------------------------------------------------

    def joined(self, place: int) -> list[NodeCommand]:
        """Another place can be told something."""
        return self.protocol.joined(place) + self._perhaps_finish()

    def left(self, place: int) -> list[NodeCommand]:
        """Another place is gone and will never be promoted: the coordinator says so."""
        return self.protocol.left(place) + self._perhaps_finish()

    def heard(self, place: int, words: bytes) -> list[NodeCommand]:
        """Another place says something.  Raises BadPeer when it makes no sense."""
        return self.protocol.heard(place, words) + self._perhaps_finish()

    # --- the end of a finite stream ----------------------------------------------------------

    def _perhaps_finish(self) -> list[NodeCommand]:
        if self._finished or self._held or not self.merge.ended or self.protocol.busy:
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
        return self.outputs.acked(connection, ack) + self.protocol.acked()

    def read_back(self, connection: int, frames: Iterable[Frame]) -> list[NodeCommand]:
        """The frames that `ReadLog` asked for."""
        return self.outputs.read_back(connection, frames, self.protocol.durable_end)

    # --- for people and tests ----------------------------------------------------------------

    @property
    def tuples_in(self) -> int:
        """How many tuples have been taken."""
        return self._shell.tuples_in

    @property
    def recovering(self) -> bool:
        """Whether input that the log has the effects of is still being replayed."""
        return self.recovery is not None and self.recovery.recovering

    @property
    def replay_tuples(self) -> int:
        """How many positions are still to be replayed."""
        if self.recovery is None:
            return 0
        return max(self.recovery.replay_through + 1 - self.merge.position, 0)

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
        shell = self._shell
        figures: dict[str, float] = {
            "tuples_in": shell.tuples_in,
            "tuples_out": shell.tuples_out,
            "input_position": self.merge.position,
            "output_position": self.protocol.end,
            "pending_bytes": self.protocol.pending_bytes,
            "lag": self.outputs.lag(),
            "turns": self.turns,
            "remembered_turns": self.merge.remembered + self.protocol.remembered,
        }
        if self.recovery is not None:
            late = self.recovery.operator.late_tuples
            figures |= self.recovery.progress() | self._lateness.figures(late, shell.tuples_in)
        if any(each.dead for each in self.plan.outputs):
            figures["dead_letters"] = shell.dead_letters
        return figures

    def check_invariants(self) -> None:
        """What always holds between events."""
        self.merge.check_invariants()
        self.outputs.check_invariants()
        if self.producers is not None:
            self.producers.check_invariants()
        self.protocol.check_invariants()
        if self.recovery is not None:
            held = 0 if self._held is None else self._held.here.end - self._held.here.start
            assert self.recovery.position + held == self.merge.position, "two times in one fragment"
            self.recovery.check_invariants()


def _noting(frames: Iterable[Frame], seen: list[Frame]) -> Iterator[Frame]:
    for frame in frames:
        seen.append(frame)
        yield frame

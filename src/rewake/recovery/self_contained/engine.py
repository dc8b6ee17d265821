"""Continuous eventual checkpointing where nobody can be asked for input again (CEC II, III).

An operator inside somebody else's micro-batches has no upstream that keeps its output: what is not
in its log is gone.  So every turn leaves a record, which holds the batch's identity and the cheaper
of two things:

- way INPUT: the OPENs and ends of windows, and the rows.  Results are not in the log: a repeat
  computes them again, from the state before and the rows.
- way CHECKS: a CHECK of every window the batch touched, the ends of windows, and what came out:
  results, late tuples, dead letters.  Of running windows the results are not needed either: they
  follow from the CHECKs.

Recovery constructs the eventual checkpoint, loads it, and replays the rows that the log holds after
T.  A batch that was taken the way CHECKS needs no replay: every window it touched has ended since,
or has a footprint that is as late as the batch; positions just skip over it.

What always holds: the newest `frames_needed` frames are enough to recover, to repeat the newest
batch, and to know the state before it (see `rewake.recovery.self_contained.replaced`); which way
was taken never shows in results.

The host must append the record of a turn, wait until it is durable, and only then hand out the
results.  A turn that raises leaves the operator half-way: drop it and recover from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import pyarrow as pa

from rewake.log.frame import Frame, Section, SectionKind
from rewake.log.results import result_batch
from rewake.model.errors import DamagedFrame, DamagedLog, RewakeError, UsageError
from rewake.model.stream_event import NO_TIME, StreamEvent
from rewake.operators.columns.arrays import Int32s
from rewake.operators.stateful import (
    FURTHER_PORTS,
    NO_IDS,
    NO_SLOTS,
    Emissions,
    KeyedOperator,
    Outcome,
    StoredParts,
    open_slots,
)
from rewake.recovery.approach import LATE_OUTPUT, RESULTS_OUTPUT, Turn, by_port, rows_in
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.eventual.reading import unpack_parts
from rewake.recovery.packing import pack_tightly
from rewake.recovery.policies.policy import CheckpointPolicy, Extent
from rewake.recovery.self_contained.bounds import Bounds, KeepBounds, Ledger, LoggedTurn, Within
from rewake.recovery.self_contained.frames import (
    CHECKS_WAY,
    CURRENT_WAY,
    INPUT_WAY,
    WAY_NAMES,
    BatchMark,
    MarkedFrame,
    marked,
    watermark_of,
)
from rewake.recovery.self_contained.order import in_key_order, in_short_order
from rewake.recovery.self_contained.rows import StoredRows
from rewake.recovery.self_contained.ways import (
    ChooseWay,
    Decision,
    Touched,
    fewer_bytes,
    way_bytes,
)

__all__ = ["Bounds", "OperatorFactory", "SelfContained", "Within", "reading", "repeat"]

OperatorFactory = Callable[[], KeyedOperator]


class SelfContained:
    """One operator whose log holds all that it takes to rebuild it, driven turn by turn.

    `policy` chooses CHECKs beyond those of the way CHECKS: bounds to keep, or one of its own.
    `choose` tells which way a turn goes.
    """

    def __init__(
        self,
        operator: KeyedOperator,
        policy: CheckpointPolicy | Bounds | None = None,
        *,
        choose: ChooseWay = fewer_bytes,
    ) -> None:
        self.operator = operator
        self._rows = StoredRows(operator.input_schema, operator.columns_read)
        self._ledger = Ledger()
        if policy is None or isinstance(policy, Bounds):
            policy = KeepBounds(policy or Bounds(), self._ledger)
        self._policy = policy
        self.choose = choose
        self._cec = ContinuousEventualCheckpointing(operator, policy, pack=pack_tightly)
        self._touched = Touched()
        # The way of the newest batch.
        self._way = INPUT_WAY
        self.identity: bytes | None = None
        # How many of the newest frames it takes to know the state before the newest batch, from
        # which a repeat may have to compute it again.
        self._repeat_frames = 0

    # --- the normal path ---------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The next input position."""
        return self._cec.position

    def turn(self, event: StreamEvent, identity: bytes) -> Turn:
        """Process the next batch; its record is never None.

        Its tuples are put in the order of their keys where each key's results stay the same.
        """
        return self._turn(event, identity, self._cec.frames_needed + 1)

    def turn_instead(self, batch: pa.RecordBatch, identity: bytes, recorded: BatchMark) -> Turn:
        """Process a batch in the place of the log's newest one, of which this is the state before.

        Its record says all that there is, so that what it replaces is never read again.
        """
        event = StreamEvent(recorded.end, batch, None, self.position)
        return self._turn(event, identity, recorded.repeat_frames + 1, whole=True)

    def _turn(
        self, event: StreamEvent, identity: bytes, repeat_frames: int, *, whole: bool = False
    ) -> Turn:
        event = in_key_order(self.operator, event)
        outcome = self._cec.process(event)
        decision = self._decided(event, outcome, whole=whole)
        self._note(event, decision)
        taken = self._cec.record(
            event.start,
            decision.recorded(outcome),
            decision.logged_outputs,
            partial(self._checks, decision),
        )
        record = taken.record or self._cec.bare_record()
        self._repeat_frames = repeat_frames
        sections = [*record.sections, *self._batch_sections(event, identity, decision)]
        self._amend_ledger(sections)
        self.identity = identity
        self._way = decision.way
        return Turn(record._replace(sections=tuple(sections)), decision.outputs, taken.checks)

    def _note(self, event: StreamEvent, decision: Decision) -> None:
        """Count the turn among those that recovery needs, before CHECKs are chosen by them."""
        rows = int(event.batch.num_rows)
        first_record = self._cec.extent().order.records
        logged = rows if decision.way == INPUT_WAY else 0
        self._ledger.add(LoggedTurn(first_record, event.position, logged, 0, 0), rows)

    def _batch_sections(
        self, event: StreamEvent, identity: bytes, decision: Decision
    ) -> list[Section]:
        mark = BatchMark(
            way=decision.way,
            # The positions of a batch that is replaced are those of the frame before.
            start=event.position if decision.whole else event.start,
            position=event.position,
            rows=event.batch.num_rows,
            watermark=NO_TIME if event.watermark is None else event.watermark,
            touched=decision.touched.size,
            emitted=rows_in(decision.outputs),
            repeat_frames=self._repeat_frames,
            columns=self._rows.fingerprint,
        )
        sections = [Section(SectionKind.BATCH, identity), mark.section()]
        if decision.way == INPUT_WAY and mark.rows:
            sections += self._rows.sections(event.batch)
        return sections

    def _amend_ledger(self, sections: Iterable[Section]) -> None:
        sizes = [(section.kind, len(section.payload)) for section in sections]
        self._ledger.amend(
            input_bytes=sum(size for kind, size in sizes if kind == SectionKind.INPUT),
            total_bytes=sum(size for _, size in sizes),
        )
        self._ledger.keep(self._cec.frames_needed)

    # --- deciding which way a turn goes ------------------------------------------------------

    def _decided(self, event: StreamEvent, outcome: Outcome, *, whole: bool) -> Decision:
        """How a stream event that has been processed goes into the log."""
        outputs = _outputs_of(outcome)
        touched = self._touched.open_slots(self.operator, outcome)
        if not whole:
            rows = self._rows.stored_bytes(event.batch)
            sizes = way_bytes(self.operator, rows, outcome, outputs, touched)
            if not self.choose(sizes):
                return Decision(INPUT_WAY, outputs, NO_SLOTS)
        follow = self.operator.results_of_parts is not None
        return Decision(CURRENT_WAY if follow else CHECKS_WAY, outputs, touched, whole)

    def _checks(self, decision: Decision, extent: Extent) -> Int32s:
        """The windows that leave a CHECK: first those that must, then what the policy says."""
        due = open_slots(self.operator) if decision.whole else self._policy.checks(extent)
        if decision.way == INPUT_WAY:
            return in_short_order(self.operator, due)
        touched, others = decision.touched, self._touched.others(due)
        if decision.way == CURRENT_WAY:
            # A repeat takes its results from these, in their order.
            return np.concatenate([touched, in_short_order(self.operator, others)])
        return in_short_order(self.operator, np.concatenate([touched, others]))

    def promise(self, within: Within | None) -> None:
        """Keep to this time from the next turn on; a policy of one's own has its own bounds."""
        if isinstance(self._policy, KeepBounds):
            self._policy.within = within

    # --- what the host may know --------------------------------------------------------------

    @property
    def frames_needed(self) -> int:
        """How many of the newest frames recovery, `repeat` and `replaced` read; trim older ones."""
        return max(self._cec.frames_needed, self._repeat_frames)

    @property
    def columns(self) -> int:
        """What tells rows that this operator stores from those of another."""
        return self._rows.fingerprint

    def progress(self) -> dict[str, float | str]:
        """Figures for people: open windows, extent, what a recovery would replay, the last way."""
        extent = self._cec.extent()
        rows, size = self._ledger.replay_after(extent.order.oldest_time(extent.position))
        return {
            "open_windows": extent.open_windows,
            "extent_records": extent.records,
            "extent_bytes": self._ledger.bytes,
            "replay_tuples": rows,
            "replay_bytes": size,
            "way": WAY_NAMES[self._way],
        }

    def check_invariants(self) -> None:
        """What always holds between turns."""
        self._cec.check_invariants()
        assert not self._cec.recovering, "a replay is not over"
        assert len(self._ledger) == self._cec.frames_needed, "the ledger has other frames"
        assert self._repeat_frames >= (self.identity is not None), "a batch nobody can repeat"

    # --- recovery ----------------------------------------------------------------------------

    @classmethod
    def recover(
        cls,
        operator_factory: OperatorFactory,
        frames_newest_first: Iterable[Frame],
        policy: CheckpointPolicy | Bounds | None = None,
        *,
        choose: ChooseWay = fewer_bytes,
    ) -> SelfContained:
        """Rebuild from a log given newest frame first; ready for the next turn.

        An empty log gives a new one.  `DamagedFrame` or `DamagedLog` when the log is not whole.
        """
        self = cls(operator_factory(), policy, choose=choose)
        read: list[MarkedFrame] = []

        def frames() -> Iterator[Frame]:
            for each in marked(frames_newest_first):
                read.append(each)
                yield each.frame

        with reading():
            self._cec.load(frames())
            if read:
                self._replay(read[::-1])
        return self

    def _replay(self, read: list[MarkedFrame]) -> None:
        """Bring restored parts up to date from the rows in the log; frames oldest first."""
        newest, passed = read[-1], NO_TIME
        for each in read:
            mark = each.mark
            if self._cec.recovering and mark.way == INPUT_WAY and mark.end > self._cec.position:
                if passed != NO_TIME:
                    # Batches that need no replay have moved the clock all the same; unlike what
                    # input says of time, the log knows where that was.
                    time = StreamEvent(self._cec.position, self._rows.empty, passed)
                    self.operator.replay(time)
                self._cec.replay(self._rest_of(each))
            passed = NO_TIME if mark.way == INPUT_WAY else each.frame.timestamp
        if self._cec.recovering:
            nothing = self._rows.empty
            self._cec.replay(StreamEvent(newest.mark.end, nothing, None, self._cec.position))
        self.identity = newest.identity
        self._repeat_frames = newest.mark.repeat_frames
        self._way = newest.mark.way
        first_record = 0
        for each in read:
            rows = each.mark.rows if each.mark.way == INPUT_WAY else 0
            turn = LoggedTurn(first_record, each.mark.position, rows, each.input_bytes, each.bytes)
            self._ledger.add(turn, each.mark.rows)
            first_record += each.frame.records
        self._ledger.keep(self._cec.frames_needed)

    def _rest_of(self, each: MarkedFrame) -> StreamEvent:
        """The rows of a frame that are still to be replayed, behind what needs no replay."""
        mark, position = each.mark, self._cec.position
        event = StreamEvent(mark.position, self._rows.unpack(each), None, mark.start)
        if event.start < position:
            return event.split(position)[1]
        return StreamEvent(event.position, event.batch, None, position)


def repeat(operator_factory: OperatorFactory, frames_newest_first: Iterable[Frame]) -> Emissions:
    """The results of the newest frame's batch once more; nothing is changed."""
    frames = marked(frames_newest_first)
    newest = next(frames, None)
    if newest is None:
        raise UsageError("the log is empty: it has no batch whose results could be given again")
    with reading():
        if newest.mark.way == INPUT_WAY:
            older = (each.frame for each in frames)
            outputs = _computed_again(operator_factory, newest, older)
        elif newest.mark.way == CURRENT_WAY:
            operator = operator_factory()
            outputs = [*_current_values(operator, newest), *_stored_results(operator, newest.frame)]
        else:
            outputs = _stored_results(operator_factory(), newest.frame)
    if rows_in(outputs) != newest.mark.emitted:
        raise DamagedLog(
            f"frame {newest.frame.sequence} says that its batch had {newest.mark.emitted} results, "
            f"but {rows_in(outputs)} follow from the log: it belongs to another operator"
        )
    return outputs


def _computed_again(
    operator_factory: OperatorFactory, newest: MarkedFrame, older: Iterable[Frame]
) -> Emissions:
    """Results of a batch from the state before it and its rows."""
    before = SelfContained.recover(operator_factory, older)
    mark, sequence = newest.mark, newest.frame.sequence
    if before.position != mark.start or (before.identity is None) != (sequence == 0):
        raise DamagedLog(
            f"the batch in frame {sequence} starts at input position {mark.start}, but the log "
            f"before it ends at {before.position}: it was trimmed too far; restore the older "
            "segments",
            sequence=sequence,
        )
    rows = before._rows.unpack(newest)
    event = StreamEvent(mark.position, rows, watermark_of(mark), mark.start)
    return _outputs_of(before.operator.process(event))


def _outputs_of(outcome: Outcome) -> Emissions:
    """Results, late tuples, and what the operator gives besides."""
    return [*by_port(outcome), *outcome.others]


def _current_values(operator: KeyedOperator, newest: MarkedFrame) -> Emissions:
    """Results of running windows: what the CHECKs of the parts that were touched hold."""
    frame, touched = newest.frame, newest.mark.touched
    ids, columns = unpack_parts(frame.section(SectionKind.CHECKS), frame.t_end, frame.records)
    results_of = operator.results_of_parts
    if touched > ids.size or results_of is None:
        raise DamagedFrame(f"frame {frame.sequence} has no CHECKs of {touched} running windows")
    if touched == 0:
        return ()
    chosen = np.arange(touched)
    times = np.full(touched, frame.t_end, np.int64)
    nothing = StoredParts(NO_IDS, NO_IDS, [], [], [])
    parts = StoredParts(ids[:touched], times, [columns], [chosen], [ids.size])
    slots = operator.restore(nothing, parts, clock=frame.timestamp, late_tuples=0)
    return ((RESULTS_OUTPUT, results_of(slots)),)


def _stored_results(operator: KeyedOperator, frame: Frame) -> Emissions:
    """Results that the frame holds."""
    schemas = [(RESULTS_OUTPUT, operator.output_schema), (LATE_OUTPUT, operator.late_schema)]
    for number, name in enumerate(operator.spec.further_outputs, FURTHER_PORTS):
        schemas.append((number, operator.spec.further_schema(name, operator.input_schema)))
    found = [(output, result_batch(frame, schema, output)) for output, schema in schemas]
    return [(output, batch) for output, batch in found if batch is not None]


@contextmanager
def reading() -> Iterator[None]:
    """Whatever goes wrong while a log is read and replayed is the log's fault."""
    try:
        yield
    except (DamagedFrame, DamagedLog):
        raise
    except RewakeError as error:
        raise DamagedLog(
            f"the log cannot be replayed: {error}; it is not what this operator wrote"
        ) from error

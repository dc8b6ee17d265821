"""Two places of one fragment, a link between them that breaks, and whoever reads the output.

What the node, its host and the coordinator do besides is done here as plainly as can be; a reader
remembers what it got by position, and so sees everything that contradicts itself.
"""

from __future__ import annotations

from collections import deque

from program_cases import ProgramCase

from rewake.log.results import result_sections
from rewake.node.channels.packets import punctuation_section
from rewake.recovery.approach import Approach, Release, rows_in
from rewake.recovery.driven import Forward, LogSoFar, Say, Vouch


class Places:
    """One fragment under an approach with a second place; every method is one thing that happens.

    `let_go`: by position, what any consumer may have got: the payloads of a record, and its end.
    """

    def __init__(self, case: ProgramCase, approach: Approach) -> None:
        self.case, self.approach = case, approach
        self.let_go: dict[int, tuple[int, tuple[tuple[int, bytes], ...]]] = {}
        self.sent_through = 0
        self.promotions = 0
        self._run(LogSoFar())
        self._stand_by()

    # --- the two places ----------------------------------------------------------------------

    def _new(self):
        return self.case.program.operator(self.case.case.schema)

    def _run(self, past: LogSoFar) -> None:
        approach, emit = self.approach, self.case.program.emit
        frames = tuple(past.frames)
        if past.alive is not None:
            self.node = approach.resume(past.alive, frames)
        else:
            self.node = approach.build(self._new(), emit, frames)
        self.sequence, self.position = past.next_sequence, past.next_position
        self.pending: deque = deque()
        self.acknowledged = -1
        self.vouched = False
        self.linked = False
        for frame in reversed(frames):
            self._offer(frame.position, frame.sections)
        if approach.release is Release.WHEN_KEPT:
            # What it lets go from now on goes on behind all that a consumer may have.
            assert self.position >= self.sent_through, "let go what the other place does not hold"
        self._input = {each.start: each for each in self.case.events(0, self.case.cuts)}
        self._do(self.node.began())

    def _stand_by(self) -> None:
        self.standby = self.approach.stand_by(self._new, self.case.program.emit)
        self.vouched = False
        self.connect()

    def connect(self) -> None:
        """A new link: what was under way on the old one is gone."""
        self.to_standby: deque[bytes] = deque()
        self.to_node: deque[bytes] = deque(self.standby.opened())
        self.linked = True
        self._do(self.node.joined(1))

    def replaced(self) -> None:
        """The place that stood by dies; another begins with nothing."""
        self._do(self.node.left(1))
        self._stand_by()

    def promoted(self) -> None:
        """Where the node ran dies; the place that is in sync goes on, and another begins."""
        if not self.vouched:
            return
        self.promotions += 1
        before = self.acknowledged
        self._run(self.standby.past())
        assert self.node.position > before, "input that was acknowledged is needed"
        self._stand_by()

    # --- what happens ------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether all input has been taken."""
        return self._next() is None

    def _next(self):
        # Where a watermark stands alone two stream events begin at one position.
        return next((each for each in self._events if each is not None), None)

    @property
    def _events(self):
        at = self.node.position
        yield from (each for each in self.case.events(at, self.case.cuts) if each.start >= at)

    def take(self, turns: int, now_ms: float) -> None:
        """The node takes so many turns."""
        events = iter(list(self._events))
        for _ in range(turns):
            event = next(events, None)
            if event is None:
                return
            self._turn(event, now_ms)

    def _turn(self, event, now_ms: float) -> None:
        replayed = self.node.recovering
        turn = self.node.turn(event, now_ms)
        watermark = None if replayed else event.watermark
        record = turn.record
        rows = rows_in(turn.outputs)
        if record is None and not self.node.recovering and (rows or watermark is not None):
            record = self.node.bare_record()
            sections = (*record.sections, *result_sections(turn.outputs))
            record = record._replace(tuples=rows, sections=sections)
        if not self.node.recovering:
            self.node.check_invariants()
        if record is None:
            return
        if watermark is not None:
            record = record._replace(sections=(*record.sections, punctuation_section(watermark)))
        start, self.position = self.position, self.position + record.tuples
        sequence, self.sequence = self.sequence, self.sequence + 1
        if self.approach.release is Release.AT_ONCE:
            self._offer(start, record.sections)
        self.pending.append((sequence, start, record.sections, self.node.acknowledged))
        self._do(self.node.keep(sequence, start, record))

    def hear(self, words: int) -> None:
        """So many words arrive, in order, each way."""
        for _ in range(words):
            if self.to_standby:
                self.to_node += self.standby.heard(self.to_standby.popleft())
            if self.to_node:
                self._do(self.node.heard(1, self.to_node.popleft()))

    def forget(self, fraction: float) -> None:
        """Consumers need nothing of so much of what is behind; the newest record stays."""
        kept = getattr(self.node, "kept", ())
        if kept and not self.pending:
            first, own = kept[0].sequence, self.sequence - self.node.frames_needed
            before = min(own, first + int(fraction * (self.sequence - first)))
            self._do(self.node.forget(before))

    def quiet(self) -> None:
        """Everything that is under way arrives."""
        while self.to_standby or self.to_node:
            self.hear(1)

    # --- what is asked for -------------------------------------------------------------------

    def _do(self, commands) -> None:
        for command in commands:
            match command:
                case Say(_, words):
                    self.to_standby.append(words)
                case Vouch():
                    self.vouched = True
                case Forward(before):
                    while self.pending and self.pending[0][0] < before:
                        _, start, sections, acknowledged = self.pending.popleft()
                        self.acknowledged = acknowledged
                        self._offer(start, sections)

    def _offer(self, start: int, sections) -> None:
        results = tuple(
            (each.output, bytes(each.payload)) for each in sections if each.kind.name == "RESULTS"
        )
        if not results:
            return
        known = self.let_go.setdefault(start, (0, results))
        assert known[1] == results, f"two contents at position {start}"
        self.sent_through = max(self.sent_through, start + 1)

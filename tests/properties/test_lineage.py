"""Whatever is copied, restored and continued: a lineage tells one history from another.

The model writes down every tuple.  A consumer that has consumed some of a log, and meets a log
later, may go on exactly when what it has consumed is the beginning of what is there.
"""

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st
from log_vocabulary import sample_turn

from rewake.log.files.lineage import Lineage, LogRecord, Step, check_record
from rewake.log.log import Log
from rewake.log.memory import MemoryStore
from rewake.log.writing.host import DirectWriter
from rewake.model.errors import HistoryMismatch
from rewake.node.channels.origins import check_origin


@dataclass(frozen=True)
class Past:
    """A log, its tuples, and the epoch that comes next (as its coordinator would say)."""

    tuples: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    epoch: int = 1

    def continued(self, count: int, tag: int) -> "Past":
        """A writer opens it and appends so many tuples."""
        step = Step(self.epoch, len(self.tuples), tag)
        fresh = tuple(f"{tag}.{number}" for number in range(count))
        return replace(
            self,
            tuples=self.tuples + fresh,
            steps=(*self.steps, step),
            epoch=self.epoch + 1,
        )

    def gone_back(self, count: int) -> "Past":
        """The tuples behind the first `count` are taken back, by whoever continues it."""
        kept = tuple(step for step in self.steps if step.position < count)
        return replace(self, tuples=self.tuples[:count], steps=kept)

    @property
    def lineage(self) -> Lineage:
        return Lineage(7, self.steps, len(self.tuples))


@st.composite
def pasts(draw: st.DrawFn) -> list[Past]:
    """Logs that came of one: continued, copied, and the copies continued, or gone back."""
    found = [Past()]
    for tag in range(draw(st.integers(1, 10))):
        past = draw(st.sampled_from(found))
        if draw(st.booleans()):
            past = past.gone_back(draw(st.integers(0, len(past.tuples))))
        found.append(past.continued(draw(st.integers(0, 4)), tag))
    return found


@given(st.data(), pasts())
def test_a_consumer_goes_on_exactly_where_its_past_is_there(
    data: st.DataObject, found: list[Past]
) -> None:
    """Epochs are the same again in every copy; positions are, too.

    Nor does it where its past is there and goes on differently than it remembers.
    """
    seen, met = data.draw(st.sampled_from(found)), data.draw(st.sampled_from(found))
    reached = data.draw(st.integers(0, len(seen.tuples)))
    trimmed = met.lineage.since(data.draw(st.integers(0, reached)))
    known = {step.epoch: step.tag for step in seen.steps}
    differs = any(known.get(step.epoch, step.tag) != step.tag for step in trimmed.steps)
    forked = reached > 0 and differs  # who has nothing fits to anything
    same = seen.tuples[:reached] == met.tuples[:reached] and not forked
    try:
        if reached:
            check_origin("sink", "entry", seen.lineage, trimmed, reached)
    except HistoryMismatch:
        assert not same, "one history was refused"
    else:
        assert same, "two histories passed for one"


@given(st.data(), pasts())
def test_what_is_known_grows_with_what_is_told(data: st.DataObject, found: list[Past]) -> None:
    """A consumer that follows a log knows as much as one that was told all of it at once."""
    last = data.draw(
        st.sampled_from([past for past in found if past.steps] or [Past().continued(1, 0)])
    )
    known = Lineage(7, last.steps[:1], 0)
    for count in range(1, len(last.steps) + 1):
        at = data.draw(st.integers(0, last.steps[count - 1].position))
        known = known.followed_by(Lineage(7, last.steps[:count], 0).since(at))
    for position in range(1, len(last.tuples) + 1):
        assert known.writer(position) == last.lineage.writer(position)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.data())
def test_a_log_is_refused_exactly_when_it_lacks_what_is_remembered(
    counts: list[int], data: st.DataObject
) -> None:
    """Copies of a real log after every frame; a record of any of those times."""
    store = MemoryStore()
    Log.create(store, "one", log_id=7)
    copies = []
    for epoch, count in enumerate(counts, 1):
        writer = DirectWriter(store.attach(), epoch=epoch)
        sequence = writer.point.frontier.sequence
        copies.append((LogRecord(7, epoch, sequence), store.killed()))
        for _ in range(count):
            sequence = writer.append(sample_turn(sequence)) + 1
            copies.append((LogRecord(7, epoch, sequence), store.killed()))
    record, _ = data.draw(st.sampled_from(copies))
    there, copy = data.draw(st.sampled_from(copies))
    older = there.epoch < record.epoch or there.sequence < record.sequence
    try:
        check_record((copy,), record, "one")
    except HistoryMismatch:
        assert older
    else:
        assert not older

"""The queue of footprints against a plain list that forgets nothing."""

from unittest import mock

import numpy as np
from aggregate_cases import examples
from aggregate_runs import TRIED
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rewake.recovery import footprint_order
from rewake.recovery.footprint_order import FootprintOrder, Footprints


class FootprintOrderAgainstList(RuleBasedStateMachine):
    """A model: for each open slot the part in it, and the number and time of its last footprint."""

    @initialize(page=st.sampled_from([3, 7, 64]), many=st.sampled_from([1, 5, 1000]))
    def start(self, page: int, many: int) -> None:
        """Nothing is open, nothing was written; pages are small, and full sooner or later."""
        TRIED["cases"] += 1
        sizes = {"PAGE": page, "MANY": many, "SPARE": 4}
        self.sizes = mock.patch.multiple(footprint_order, **sizes)
        self.sizes.start()
        self.opened_at = np.full(64, -1, np.int64)
        self.order = FootprintOrder(self._ids_of)
        self.last: dict[int, tuple[int, int]] = {}
        self.records = 0
        self.now = 0

    def _ids_of(self, slots: np.ndarray) -> np.ndarray:
        return self.opened_at[slots]

    def _oldest_first(self) -> list[int]:
        return sorted(self.last, key=lambda slot: self.last[slot])

    @rule(slots=st.lists(st.integers(0, 40), unique=True, max_size=8))
    def windows_open(self, slots: list[int]) -> None:
        """Windows open in slots that are free, each by a tuple of its own."""
        free = [slot for slot in slots if slot not in self.last]
        ids = np.arange(self.now + 1, self.now + 1 + len(free))
        self.opened_at[free] = ids
        self.order.opened(np.array(free, np.int32), ids)
        for slot in free:
            self.last[slot] = (self.records, self.now)
            self.records += 1
            self.now += 1

    @precondition(lambda self: self.last)
    @rule(data=st.data(), step=st.integers(0, 5), times=st.sampled_from([1, 1, 30]))
    def windows_are_checkpointed(self, data: st.DataObject, step: int, times: int) -> None:
        """Some open windows leave a CHECK, perhaps over and over."""
        self.now += step
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.last)), unique=True, min_size=1))
        slots = np.array(chosen, np.int32)
        for _ in range(times):
            self.order.checked(slots, self._ids_of(slots), self.now)
            for slot in chosen:
                self.last[slot] = (self.records, self.now)
                self.records += 1

    def teardown(self) -> None:
        """Pages are as large as ever."""
        if hasattr(self, "sizes"):
            self.sizes.stop()

    @rule()
    def dead_footprints_are_dropped(self) -> None:
        """Dropping what no window needs changes nothing that can be seen."""
        self.order.forget_dead(len(self.last))

    @rule(count=st.integers(0, 5))
    def results(self, count: int) -> None:
        """Results are records, too."""
        self.order.results(count)
        self.records += count

    @precondition(lambda self: self.last)
    @rule(data=st.data(), everything=st.booleans())
    def windows_end(self, data: st.DataObject, everything: bool) -> None:
        """Some or all open windows are not open any more, and dead footprints may be dropped."""
        some = st.lists(st.sampled_from(sorted(self.last)), unique=True, min_size=1)
        chosen = list(self.last) if everything else data.draw(some)
        self.opened_at[chosen] = -1
        for slot in chosen:
            del self.last[slot]
        # At once: looking at the head would drop them in another way.
        self.dead_footprints_are_dropped()

    @rule()
    def recover(self) -> None:
        """A new queue is built from the last footprints; records before the oldest are gone."""
        first = min((record for record, _ in self.last.values()), default=self.records)
        self.last = {slot: (record - first, time) for slot, (record, time) in self.last.items()}
        self.records -= first
        slots = np.array(sorted(self.last), np.int32)
        pairs = np.array([self.last[slot] for slot in slots.tolist()], np.int64).reshape(-1, 2)
        self.order = FootprintOrder(self._ids_of)
        footprints = Footprints(slots, self._ids_of(slots), pairs[:, 0], pairs[:, 1])
        self.order.restore(footprints, self.records)

    @rule(q=st.integers(0, 60), back=st.integers(0, 20), limit=st.integers(0, 10))
    def overdue(self, q: int, back: int, limit: int) -> None:
        """The shortest run of oldest windows whose CHECKs meet both targets, within the limit."""
        oldest = self._oldest_first()
        needed = 0
        for taken, slot in enumerate(oldest):
            record, time = self.last[slot]
            if self.records + taken - record <= q and time >= self.now - back:
                break
            needed = taken + 1
        found = self.order.overdue(most_records=q, oldest_time=self.now - back, limit=limit)
        assert found.tolist() == oldest[: min(needed, limit)]

    @rule(
        load=st.sampled_from([0.5, 1.0, 3.0]),
        replay=st.sampled_from([0.25, 1.0]),
        price=st.sampled_from([0.5, 1.0, 4.0]),
        limit=st.integers(0, 10),
    )
    def most_worthwhile(self, load: float, replay: float, price: float, limit: int) -> None:
        """By trying them all: the first number of oldest windows with the greatest gain."""
        oldest = self._oldest_first()
        ends = [self.last[slot] for slot in oldest] + [(self.records, self.now)]

        def gain(taken: int) -> float:
            record, time = ends[taken]
            shorter = record - ends[0][0] - taken
            return load * shorter + replay * (time - ends[0][1]) - price * taken

        best = max(range(min(limit, len(oldest)) + 1), key=gain) if oldest else 0
        found = self.order.most_worthwhile(
            self.now, load=load, replay=replay, price=price, limit=limit
        )
        assert found.tolist() == oldest[:best]

    @rule(limit=st.integers(1, 50), at_once=st.sampled_from([1, 4, 1024]))
    def oldest(self, limit: int, at_once: int) -> None:
        """The oldest windows with their last footprints; however many are looked at in one go."""
        with mock.patch.object(footprint_order, "PIECE", at_once):
            found = self.order.oldest(limit)
        expected = self._oldest_first()[:limit]
        assert found.slots.tolist() == expected
        pairs = zip(found.records.tolist(), found.times.tolist(), strict=True)
        assert list(pairs) == [self.last[slot] for slot in expected]
        # A sample of all is all: those behind the oldest, numbered.
        behind, ranks = self.order.sampled(10**6, beyond=limit)
        assert behind.slots.tolist() == self._oldest_first()[limit:]
        assert ranks.tolist() == list(range(limit + 1, len(self.last) + 1))

    @invariant()
    def q_and_u_are_those_of_the_oldest(self) -> None:
        """The extent counts records from the oldest footprint on; T is its time."""
        if not hasattr(self, "last"):
            return
        oldest = self._oldest_first()
        record, time = self.last[oldest[0]] if oldest else (self.records, self.now)
        assert self.order.records == self.records
        assert self.order.extent_records() == self.records - record
        assert self.order.oldest_time(self.now) == time
        self.order.check_invariants(self.opened_at)


TestFootprintOrderAgainstList = FootprintOrderAgainstList.TestCase
TestFootprintOrderAgainstList.settings = settings(examples(100), stateful_step_count=30)

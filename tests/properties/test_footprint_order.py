"""The queue of footprints against a plain list that forgets nothing."""

import numpy as np
from aggregate_cases import examples
from aggregate_runs import TRIED
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rewake.recovery.footprint_order import FootprintOrder


class FootprintOrderAgainstList(RuleBasedStateMachine):
    """A model: for each open slot the record number and time of its last footprint."""

    @initialize()
    def start(self) -> None:
        """Nothing is open, nothing was written."""
        TRIED["cases"] += 1
        self.order = FootprintOrder()
        self.last: dict[int, tuple[int, int]] = {}
        self.records = 0
        self.now = 0

    def _oldest_first(self) -> list[int]:
        return sorted(self.last, key=lambda slot: self.last[slot])

    def _leave(self, slots: list[int]) -> None:
        self.order.leave(np.array(slots, np.int32), np.full(len(slots), self.now, np.int64))
        for slot in slots:
            self.last[slot] = (self.records, self.now)
            self.records += 1

    @rule(slots=st.lists(st.integers(0, 40), unique=True, max_size=8), step=st.integers(0, 5))
    def footprints(self, slots: list[int], step: int) -> None:
        """Windows open or are checkpointed."""
        self.now += step
        self._leave(slots)

    @rule(times=st.integers(1, 400))
    def many_footprints(self, times: int) -> None:
        """One window over and over: dead entries pile up and are dropped."""
        for _ in range(times):
            self._leave([3])

    @rule(count=st.integers(0, 5))
    def results(self, count: int) -> None:
        """Results are records, too."""
        self.order.results(count)
        self.records += count

    @precondition(lambda self: self.last)
    @rule(data=st.data())
    def windows_end(self, data: st.DataObject) -> None:
        """Some open windows are not open any more."""
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.last)), unique=True, min_size=1))
        self.order.ended(np.array(chosen, np.int32))
        for slot in chosen:
            del self.last[slot]

    @rule()
    def recover(self) -> None:
        """A new queue is built from the last footprints; records before the oldest are gone."""
        first = min((record for record, _ in self.last.values()), default=self.records)
        self.last = {slot: (record - first, time) for slot, (record, time) in self.last.items()}
        self.records -= first
        slots = np.array(sorted(self.last), np.int32)
        pairs = np.array([self.last[slot] for slot in slots.tolist()], np.int64).reshape(-1, 2)
        self.order = FootprintOrder()
        self.order.restore(slots, pairs[:, 0], pairs[:, 1], self.records)

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

    @invariant()
    def q_and_u_are_those_of_the_oldest(self) -> None:
        """q counts records from the oldest footprint on; T is its time."""
        if not hasattr(self, "last"):
            return
        oldest = self._oldest_first()
        record, time = self.last[oldest[0]] if oldest else (self.records, self.now)
        assert self.order.records == self.records
        assert self.order.extent_records() == self.records - record
        assert self.order.oldest_time(self.now) == time
        opened_at = np.full(64, -1, np.int64)
        opened_at[list(self.last)] = 1
        self.order.check_invariants(opened_at)


TestFootprintOrderAgainstList = FootprintOrderAgainstList.TestCase
TestFootprintOrderAgainstList.settings = settings(examples(100), stateful_step_count=30)

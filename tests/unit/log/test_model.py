"""A log against a list: any order of appends, losses of power, successions, trims, going back."""

from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from log_vocabulary import Oracle, OracleWriter, read_numbers

from rewake.log.log import Log
from rewake.log.memory import Choices, Faults, MemoryStore, PowerLost
from rewake.log.retention import Needs, Retention, trim
from rewake.log.verify import verify
from rewake.log.writing.pipeline import Limits, Mode

LIMITS = Limits(segment_bytes=700, index_interval=250, batch_frames=3, sync_bytes=400)


class LogMachine(RuleBasedStateMachine):
    """The model is the oracle: what was tried, and what was promised."""

    @initialize(stripes=st.integers(1, 3), mode=st.sampled_from(Mode))
    def create(self, stripes: int, mode: Mode) -> None:
        self.mode = mode
        self.stores = [MemoryStore() for _ in range(stripes)]
        self.oracle = Oracle()
        self.number = 0
        Log.create(self.stores, "model", log_id=77)
        self.open()

    def open(self, back_to: int | None = None) -> None:
        writer = OracleWriter(self.stores, mode=self.mode, limits=LIMITS, back_to=back_to)
        self.writer = writer.watch(self.oracle)
        self.oracle.judge(read_numbers(self.stores))

    @rule(count=st.integers(1, 7), size=st.sampled_from([0, 24, 400]))
    def append(self, count: int, size: int) -> None:
        for _ in range(count):
            self.writer.try_turn(self.number, size=size)
            self.number += 1
        self.writer.run()

    @rule(count=st.integers(1, 5), steps=st.integers(0, 12), seed=st.integers(0, 1 << 32))
    def lose_power_while_appending(self, count: int, steps: int, seed: int) -> None:
        for _ in range(count):
            self.writer.try_turn(self.number)
            self.number += 1
        for _ in range(steps):
            self.writer.step()
        choose = Choices(seed)
        self.stores = [store.crash(choose) for store in self.stores]
        self.open()

    @rule()
    def be_killed(self) -> None:
        self.stores = [store.killed() for store in self.stores]
        self.open()

    @rule()
    def close_and_reopen(self) -> None:
        self.writer.close()
        self.open()

    def goes_back(self, share: float) -> int:
        floor = Log.open_reader(self.stores).first_sequence
        to = floor + int(share * (self.writer.pipeline.next_sequence - floor))
        self.oracle.trimmed = min(self.oracle.trimmed, to)
        self.oracle.goes_back(to)
        self.stores[0].unlock()
        return to

    @rule(share=st.floats(0, 1))
    def go_back(self, share: float) -> None:
        to = self.goes_back(share)
        self.open(back_to=to)
        assert self.writer.point.frontier.sequence == to

    @rule(share=st.floats(0, 1), at=st.integers(1, 30), seed=st.integers(0, 1 << 32))
    def lose_power_while_going_back(self, share: float, at: int, seed: int) -> None:
        to = self.goes_back(share)
        faults = Faults(crash_at=at)
        for store in self.stores:
            store.faults = faults
        with suppress(PowerLost):
            Log.open_for_append(self.stores, back_to=to)
        choose = Choices(seed)
        self.stores = [store.crash(choose) for store in self.stores]
        self.open()

    @rule(share=st.floats(0, 1), max_bytes=st.sampled_from([0, 1000]))
    def trim(self, share: float, max_bytes: int) -> None:
        needed = int(share * self.writer.pipeline.next_sequence)
        self.oracle.trimmed = max(self.oracle.trimmed, needed)
        trim(self.stores, Needs(recovery=needed), Retention(max_bytes=max_bytes))

    @invariant()
    def all_promises_hold(self) -> None:
        if hasattr(self, "writer"):
            self.oracle.judge(read_numbers(self.stores))
            self.writer.pipeline.check_invariants()
            assert verify(self.stores).intact

    @invariant()
    def backwards_is_forwards_reversed(self) -> None:
        if hasattr(self, "writer"):
            reader = Log.open_reader(self.stores)
            forwards = [frame.sequence for frame in reader.frames()]
            assert [f.sequence for f in reader.frames_backwards()] == forwards[::-1]


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)

"""A log cut at every byte: what is left is the exact prefix of whole frames, or a refusal."""

import time
from bisect import bisect_right
from functools import cache

import pytest
import strength
from log_vocabulary import read_numbers, sample_turn

from rewake.log.files.layout import MARK, segment_id
from rewake.log.files.mark import RUNNING_SLOTS, SLOT_SIZE
from rewake.log.files.segment import SEGMENT_HEADER_SIZE
from rewake.log.frame import decode_header
from rewake.log.log import Log
from rewake.log.writing.host import DirectWriter
from rewake.model.errors import DamagedLog
from rewake.sim.memory import Choices, MemoryStore

# Every byte is a cut, and every cut reads the log again: cost grows with the square.
LOG_BYTES = (66 if strength.WHOLE else 24) << 10


class Specimen:
    """A log of about `LOG_BYTES` in one segment, and where each of its frames ends."""

    def __init__(self, *, forget_marks: bool) -> None:
        store = MemoryStore()
        Log.create(store, "specimen", log_id=0x5EED)
        writer = DirectWriter(store)
        number = 0
        while writer.pipeline.durable.ends[0].offset < LOG_BYTES:
            if number == 6 and not forget_marks:
                middle = store.read(MARK, 0, 1 << 20)
            writer.append(sample_turn(number, size=8 * (number * 397 % 1060)))
            number += 1
        self.files = {name: store.read(name, 0, 1 << 20) for name in store.names()}
        self.segment = next(name for name in self.files if segment_id(name))
        if forget_marks:
            # As after power loss: only the anchor that was synced on opening is left.
            anchors = self.files[MARK][RUNNING_SLOTS * SLOT_SIZE :]
            self.files[MARK] = bytes(RUNNING_SLOTS * SLOT_SIZE) + anchors
        else:
            self.files[MARK] = middle
        self.data = self.files[self.segment]
        self.ends = [SEGMENT_HEADER_SIZE]
        while self.ends[-1] < len(self.data):
            self.ends.append(self.ends[-1] + decode_header(self.data, self.ends[-1]).length)
        self.marked = 0 if forget_marks else self.ends[6]
        choose = Choices(1)
        noise = b"".join(
            choose(1 << 64).to_bytes(8, "little") for _ in range(len(self.data) // 8 + 1)
        )
        self.tails = {"short": b"", "zeros": bytes(len(self.data)), "garbage": noise}

    def cut(self, at: int, tail: str) -> MemoryStore:
        """A disk on which the segment ends, or turns to something else, at byte `at`."""
        store = MemoryStore()
        for name, data in self.files.items():
            store.create(name, data)
        store.truncate(self.segment, at)
        store.write(self.segment, at, (self.tails[tail][at : len(self.data)],))
        return store

    def whole_frames(self, at: int, tail: str) -> int:
        """How many frames are as they were written."""
        while at < len(self.data) and self.tails[tail][at : at + 1] == self.data[at : at + 1]:
            at += 1  # the byte that took its place happens to be the same
        return bisect_right(self.ends, at) - 1


@cache
def specimen(*, forget_marks: bool) -> Specimen:
    return Specimen(forget_marks=forget_marks)


def recovered_twice(store: MemoryStore, expected: int) -> None:
    first = Log.open_for_append(store)
    assert first.frontier.sequence == expected
    store.unlock()
    second = Log.open_for_append(store)
    assert second.frontier[:3] == first.frontier[:3]
    assert second.epoch == first.epoch + 1


@pytest.mark.parametrize("tail", ["short", "zeros", "garbage"])
def test_a_log_cut_at_any_byte_keeps_exactly_its_whole_frames(tail, tally):
    """Recovery finds the prefix of whole frames, twice, and refuses a cut in the header."""
    log = specimen(forget_marks=True)
    started = time.perf_counter()
    cases = 0
    for at in strength.sampled(range(len(log.data) + 1), 10, about=strength.LOG):
        cases += 1
        store = log.cut(at, tail)
        if at < SEGMENT_HEADER_SIZE:
            with pytest.raises(DamagedLog):
                Log.open_for_append(store)
            continue
        whole = log.whole_frames(at, tail)
        recovered_twice(store, whole)
        if cases % 499 == 0:
            assert read_numbers([store]) == {number: number for number in range(whole)}
    took = time.perf_counter() - started
    tally(f"torn tail, {tail}: {cases} cuts, each recovered twice, in {took:.1f} s")


@pytest.mark.parametrize("tail", ["short", "zeros", "garbage"])
def test_a_log_cut_below_its_mark_is_refused(tail, tally):
    """Below the mark a cut is damage, above it a torn tail."""
    log = specimen(forget_marks=False)
    cases = 0
    for at in strength.sampled(range(0, len(log.data) + 1, 7), 10, about=strength.LOG):
        cases += 1
        store = log.cut(at, tail)
        if at < log.marked:
            with pytest.raises(DamagedLog):
                Log.open_for_append(store)
        else:
            recovered_twice(store, log.whole_frames(at, tail))
    tally(f"torn tail below and above the mark, {tail}: {cases} cuts")

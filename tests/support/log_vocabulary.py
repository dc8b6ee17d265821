"""A small vocabulary for testing logs: turns that can be told apart, and an oracle of promises.

The oracle knows nothing of files.  It is told which turn was tried at which sequence and what was
acknowledged, and then judges what a reader finds: nothing acknowledged may be lost or changed,
nothing may be there that nobody appended, and there is no gap.

A log that goes back is asked to lose what was promised from a sequence on: all of it or, if that
was cut short, nothing.  Once it is lost, none of it may be there again.
"""

from collections.abc import Sequence

from rewake.log.frame import Frame, Section, SectionKind, TurnRecord
from rewake.log.log import Log
from rewake.log.store import Store
from rewake.log.writing.host import DirectWriter

__all__ = ["Oracle", "OracleWriter", "number_of", "read_numbers", "sample_turn"]


def sample_turn(number: int, *, size: int = 24, tuples: int = 3) -> TurnRecord:
    """A turn that carries its number in a field and, differently, in its payload."""
    payload = (number * 2654435761 % (1 << 64)).to_bytes(8, "little") * (size // 8)
    sections = (Section(SectionKind.RESULTS, payload), Section(SectionKind.CHECKS, b"", 1))
    return TurnRecord(number, number * 10, number % 7, tuples, number % 5, sections)


def number_of(frame: Frame) -> int:
    """The number of a sample turn; AssertionError when the frame is not what was appended."""
    payload = frame.section(SectionKind.RESULTS)
    assert payload is not None
    expected = sample_turn(frame.t_end, size=len(payload), tuples=frame.tuples)
    assert frame.timestamp == expected.timestamp
    assert bytes(payload) == bytes(expected.sections[0].payload)
    return frame.t_end


def read_numbers(stores: Sequence[Store]) -> dict[int, int]:
    """Sequence -> number for every frame a new reader sees, read forwards, checked backwards."""
    reader = Log.open_reader(stores)
    numbers = {frame.sequence: number_of(frame) for frame in reader.frames()}
    assert list(numbers) == list(range(reader.first_sequence, reader.end_sequence))
    return numbers


class Oracle:
    """What was promised, whoever promised it."""

    def __init__(self) -> None:
        self.tried: dict[int, set[int]] = {}
        self.promised: dict[int, int] = {}
        self.trimmed = 0  # frames below this sequence were allowed to go
        self.going_back: int | None = None  # frames from here on may be taken back, or not yet

    def try_(self, sequence: int, number: int) -> None:
        """A writer is about to append the turn `number` as `sequence`."""
        self.tried.setdefault(sequence, set()).add(number)

    def promise(self, sequence: int, number: int) -> None:
        """A writer was told that its frame is safe."""
        assert self.promised.setdefault(sequence, number) == number, "two writers were promised"

    def goes_back(self, to: int) -> None:
        """A writer is about to take back the frames from `to` on."""
        self.going_back = to

    def opened(self, end: int) -> None:
        """A writer has opened the log, which ends there: who was going back has, or never will."""
        if self.going_back is not None and end <= self.going_back:
            for known in (self.promised, self.tried):
                for sequence in [each for each in known if each >= self.going_back]:
                    del known[sequence]
        self.going_back = None

    def judge(self, numbers: dict[int, int]) -> None:
        """What a reader found must be what was promised, and nothing that nobody tried."""
        first = min(numbers, default=0)
        assert not numbers or first <= self.trimmed, f"frames up to {first} are gone"
        back = self.going_back
        gone = back if back is not None and all(each < back for each in numbers) else None
        for sequence, number in self.promised.items():
            if sequence >= max(first, self.trimmed) and (gone is None or sequence < gone):
                assert numbers.get(sequence) == number, f"promised frame {sequence} is lost"
        for sequence, number in numbers.items():
            assert number in self.tried.get(sequence, ()), (
                f"{number} at {sequence} is a phantom, or was taken back"
            )


class OracleWriter(DirectWriter):
    """A direct writer that tells an oracle what it tries and what it is promised."""

    oracle: Oracle
    numbers: dict[int, int]
    promised: int

    def watch(self, oracle: Oracle) -> "OracleWriter":
        """Report to `oracle` from now on."""
        self.oracle = oracle
        self.numbers = {}
        self.promised = self.pipeline.durable.sequence
        oracle.opened(self.promised)
        return self

    def try_turn(self, number: int, *, size: int = 24) -> None:
        """Submit a sample turn; `run` or `step` carries it out."""
        sequence = self.pipeline.next_sequence
        self.oracle.try_(sequence, number)
        self.numbers[sequence] = number
        self.submit(sample_turn(number, size=size))

    def step(self) -> object:  # type: ignore[override]
        """Carry out one command, then pass on what became durable and complete by it."""
        command = super().step()
        safe = min(self.completed, self.pipeline.durable.sequence)
        while self.promised < safe:
            self.oracle.promise(self.promised, self.numbers[self.promised])
            self.promised += 1
        return command

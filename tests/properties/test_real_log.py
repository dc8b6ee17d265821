"""The master property through a real log, on a disk that loses power."""

from collections.abc import Iterator
from contextlib import suppress

from aggregate_cases import LAST_LIVES, LIVES, Case, Life, cases, examples
from aggregate_runs import TRIED, Output, events, failure_free, forgetting, output_of, recovered
from hypothesis import given
from hypothesis import strategies as st

from rewake.log.frame import Frame, TurnRecord
from rewake.log.log import Log
from rewake.log.writing.host import DirectWriter
from rewake.log.writing.pipeline import Limits, Mode
from rewake.sim.memory import Choices, Faults, MemoryStore, PowerLost

# Several segments and index entries even for a short stream.
SMALL = Limits(segment_bytes=2000, index_interval=500, sync_bytes=1500)


class StoredFrames:
    """A log on a disk; a new writer, with a new epoch, for each life."""

    def __init__(self, store: MemoryStore, mode: Mode) -> None:
        self.store = store
        self._writer = DirectWriter(store, mode=mode, limits=SMALL)

    def append(self, record: TurnRecord) -> None:
        """Complete when it returns."""
        self._writer.append(record)

    def newest_first(self) -> Iterator[Frame]:
        """All frames, backwards."""
        return Log.open_reader(self.store).frames_backwards()

    def frames(self) -> list[Frame]:
        """All frames."""
        return list(Log.open_reader(self.store).frames())


def _live(case: Case, life: Life, store: MemoryStore, mode: Mode, power_lost_at: int) -> Output:
    """One process; it may end with `PowerLost`."""
    store.faults = Faults(crash_at=power_lost_at)
    log = StoredFrames(store, mode)
    cec = recovered(case, life, log)
    for number, event in enumerate(events(case, cec.position, life.cuts)):
        turn = cec.turn(event, float(number))
        if turn.record is not None:
            log.append(turn.record)
    return output_of(case, log.frames(), cec.operator.late_tuples)


@examples(300)
@given(
    cases(),
    st.lists(st.tuples(LIVES, st.integers(1, 80), st.integers(0, 2**16)), min_size=1, max_size=4),
    LAST_LIVES,
    st.sampled_from(Mode),
)
def test_power_loss_never_shows_in_the_output_of_a_real_log(
    case: Case, crashes: list[tuple[Life, int, int]], last: Life, mode: Mode
) -> None:
    """Power lost at any operation, any fate of what was unsynced, any number of epochs."""
    TRIED["cases"] += 1
    store = MemoryStore()
    Log.create(store, "log", log_id=7)
    expected = failure_free(case)
    with forgetting(case):
        for life, power_lost_at, seed in crashes:
            with suppress(PowerLost):
                _live(case, life, store, mode, power_lost_at).check_same(expected)
            store = store.crash(Choices(seed))
        _live(case, last, store, mode, power_lost_at=0).check_same(expected)

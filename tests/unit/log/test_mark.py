"""Marks: how far a log is complete."""

import pytest

from rewake.log.frame import TurnRecord
from rewake.log.log import Log
from rewake.log.writing.host import DirectWriter
from rewake.sim.memory import MemoryStore


@pytest.mark.parametrize("timestamp", [-(2**63), -1, 0, 2**62 - 1, 2**62, 2**63 - 1])
def test_a_reader_sees_the_last_frame_whatever_its_timestamp(timestamp: int) -> None:
    """Event time has no bearing on how far a log is complete, nor does the end of a stream."""
    store = MemoryStore()
    Log.create(store, "log", log_id=1)
    for life in range(3):
        writer = DirectWriter(store.attach())
        writer.append(TurnRecord(life, timestamp, 0, 1, 0))
        writer.stores[0].close()
        assert Log.open_reader(store).end_sequence == life + 1

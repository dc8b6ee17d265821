"""How many frames recovery would read, when nobody asks."""

import pyarrow as pa

from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Count
from rewake.operators.aggregate.operator import Aggregate, AggregateSpec
from rewake.operators.windows.specs import count_window
from rewake.recovery.eventual import engine as module
from rewake.recovery.policies.policy import OpenOnly

SCHEMA = pa.schema([("k", pa.int64())])


def test_frames_that_recovery_no_longer_needs_are_not_remembered_for_ever(monkeypatch):
    """A host that never asks must not pay with memory for every frame ever written."""
    monkeypatch.setattr(module, "MANY_FRAMES", 16)
    operator = Aggregate(AggregateSpec(["k"], count_window(2), [Count()]), SCHEMA)
    approach = module.ContinuousEventualCheckpointing(operator, OpenOnly())
    batch = pa.RecordBatch.from_pydict({"k": [1]}, schema=SCHEMA)
    for position in range(500):
        approach.turn(StreamEvent(position, batch))
        assert approach.frames_remembered <= 20
    assert approach.frames_needed <= 2

"""A process that has compiled nothing yet: what a warm-up leaves to compile for a join.

Prints whether the warm-up put compiled code into memory, and whether a run after it added any.
"""

import gc
import sys

import pyarrow as pa
from numba.core.dispatcher import Dispatcher

from rewake.log.frame import Frame
from rewake.model.stream_event import StreamEvent
from rewake.net.nodes.warm import warm_up
from rewake.operators.fragment import FragmentProgram
from rewake.operators.join.operator import JoinSpec
from rewake.recovery.approach import approach_named

SCHEMA = pa.schema([("key", pa.int32()), ("value", pa.int32()), ("at", pa.timestamp("us"))])
SPEC = JoinSpec((("key", "key"),), "10us", ("at", "at"))


def compiled() -> int:
    """Over all kernels, for how many types there is compiled code."""
    kernels = [each for each in gc.get_objects() if isinstance(each, Dispatcher)]
    return sum(len(each.signatures) for each in kernels)


def events() -> list[StreamEvent]:
    """Two streams in turns."""
    found = []
    for turn in range(20):
        rows = [{"key": n % 3, "value": n, "at": turn * 8 + n} for n in range(8)]
        batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
        # As a packet is read: compiled code differs for memory that must not be written.
        buffer = batch.serialize()
        found.append(StreamEvent(turn * 8, pa.ipc.read_record_batch(buffer, SCHEMA), port=turn % 2))
    return found


def run() -> None:
    """All of it, with a crash in the middle."""
    program = FragmentProgram(stateful=SPEC)
    approach = approach_named("cec", shot_every=3, shot_windows=2)
    driven = approach.build(program.operator(SCHEMA, SCHEMA), program.emit, ())
    frames = []
    for event in events():
        record = driven.turn(event).record
        if record is not None:
            frames.append(_frame(len(frames), record))
    again = approach.build(program.operator(SCHEMA, SCHEMA), program.emit, reversed(frames))
    for event in events():
        if event.end > again.position:
            again.turn(event)


def _frame(sequence, record):
    return Frame(1, sequence, 0, *record[:5], 0, 0, tuple(record.sections), "", 0)


if __name__ == "__main__":
    before = compiled()
    warm_up(FragmentProgram(stateful=SPEC), SCHEMA, SCHEMA)
    warm = compiled()
    run()
    told = [after > first for first, after in ((before, warm), (warm, compiled()))]
    sys.stdout.write(" ".join("some" if each else "none" for each in told))

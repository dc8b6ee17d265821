"""Getting compiled kernels into memory before they are needed.

Imported before processes are forked for nodes, so that a restarted node finds everything slow in
memory already.  `warm_up` runs a node's own program on a few made-up tuples: what is not compiled
yet is compiled while the node is starting, when nobody expects it to answer.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

import rewake.net.node_log
import rewake.net.upstream  # noqa: F401 (imported for those who are forked)
from rewake.log.frame import Frame
from rewake.model.stream_event import StreamEvent
from rewake.node.packets import event_of, packet_of
from rewake.operators.aggregate import AggregateSpec
from rewake.operators.fragment import FragmentProgram
from rewake.operators.functions import Avg, Max
from rewake.operators.stateless import schema_after
from rewake.operators.windows import count_window
from rewake.recovery.approach import approach_named

_ROWS = 4


def warm_up(program: FragmentProgram, schema: pa.Schema) -> None:
    """Run a few tuples through a program's windows, and recover them once.

    The user's own steps are left out: they must not see tuples that do not exist.  Whatever goes
    wrong here will go wrong again where it can be reported.
    """
    if program.stateful is None:
        return
    with suppress(Exception):
        _run_and_recover(
            FragmentProgram(stateful=program.stateful), schema_after(program.before, schema)
        )


def _run_and_recover(program: FragmentProgram, schema: pa.Schema) -> None:
    batch = pa.RecordBatch.from_arrays([_made_up(each) for each in schema], schema=schema)
    # From bytes, as packets are: compiled code differs for memory that must not be written.
    first, second = (event_of(packet_of(StreamEvent(start, batch)), schema) for start in (0, _ROWS))
    approach = approach_named("cec")
    record = approach.build(program.operator(schema), program.emit, ()).turn(first).record
    assert record is not None, "a window has opened"
    frame = Frame(1, 0, 0, *record[:5], 0, 0, tuple(record.sections), "", 0)
    again = approach.build(program.operator(schema), program.emit, [frame])
    again.turn(first)
    again.turn(second)
    again.progress()


def _made_up(field: pa.Field) -> pa.Array:
    if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
        return pa.array(["warm"] * _ROWS, field.type)
    return pa.array([1] * _ROWS, pa.int64()).cast(field.type, safe=False)


def _warm_up_usual() -> None:
    """The papers' query, which is also the demo's."""
    schema = pa.schema([("key", pa.int32()), ("value", pa.int32()), ("at", pa.timestamp("us"))])
    spec = AggregateSpec(["key"], count_window(10), [Avg("value"), Max("at")])
    warm_up(FragmentProgram(stateful=spec), schema)


_warm_up_usual()

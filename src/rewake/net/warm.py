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
from rewake.model.errors import RewakeError
from rewake.model.stream_event import StreamEvent
from rewake.node.packets import event_of, packet_of
from rewake.operators.aggregate import AggregateSpec
from rewake.operators.fragment import FragmentProgram
from rewake.operators.functions import Avg
from rewake.operators.windows import count_window
from rewake.recovery.approach import approach_named

_ROWS = 4


def warm_up(program: FragmentProgram, schema: pa.Schema) -> None:
    """Run a few tuples through a program; what it thinks of them does not matter."""
    with suppress(RewakeError, pa.ArrowException, NotImplementedError):
        batch = pa.RecordBatch.from_arrays([_made_up(each) for each in schema], schema=schema)
        # From bytes, as packets are: compiled code differs for memory that must not be written.
        event = event_of(packet_of(StreamEvent(0, batch)), schema)
        recovery = approach_named("cec").build(program.operator(schema), program.emit, ())
        recovery.turn(event)


def _made_up(field: pa.Field) -> pa.Array:
    if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
        return pa.array(["warm"] * _ROWS, field.type)
    return pa.array([1] * _ROWS, pa.int64()).cast(field.type, safe=False)


def _warm_up_usual() -> None:
    schema = pa.schema([("key", pa.int32()), ("value", pa.int32())])
    spec = AggregateSpec(["key"], count_window(2), [Avg("value")])
    warm_up(FragmentProgram(stateful=spec), schema)


_warm_up_usual()

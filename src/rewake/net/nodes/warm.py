"""Getting compiled kernels into memory before they are needed.

Imported before processes are forked for nodes, so that a restarted node finds everything slow in
memory already.  `warm_up` runs a node's own program on a few made-up tuples: what is not compiled
yet is compiled while the node is starting, when nobody expects it to answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa

from rewake.log.frame import Frame
from rewake.model.stream_event import END_OF_TIME, StreamEvent, no_tuples
from rewake.node.channels.packets import event_of, packet_of
from rewake.operators.aggregate.functions import Avg, Max
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.columns.key_tables import BytesTable, IntegerTable
from rewake.operators.fragment import FragmentProgram
from rewake.operators.windows.specs import count_window
from rewake.recovery.eventual.approach import ContinuousEventual
from rewake.recovery.policies.shots import Shots

_ROWS = 4
_MANY_KEYS = 10_000


def warm_up(program: FragmentProgram, *schemas: pa.Schema) -> None:
    """Run a few tuples of each input through a program's state, and recover it.

    The user's own steps and functions are left out: they must not see tuples that do not exist.
    Whatever goes wrong here will go wrong again where it can be reported.
    """
    if program.stateful is None:
        return
    with suppress(Exception):
        rehearsed = FragmentProgram(stateful=program.stateful.rehearsed())
        run_and_recover(rehearsed, *program.given_schemas(*schemas))


def run_and_recover(program: FragmentProgram, *schemas: pa.Schema) -> None:
    """Twice: parts come back from their OPENs and input, and from their CHECKs."""
    events = _made_up_events(schemas)
    for approach in (ContinuousEventual(), ContinuousEventual(Shots(1, windows=_ROWS))):
        frames: list[Frame] = []
        driven = approach.build(program.operator(*schemas), program.emit, ())
        for event in events[: len(schemas)]:
            record = driven.turn(event).record
            assert record is not None, "a part has opened"
            frame = Frame(1, len(frames), 0, *record[:5], 0, 0, tuple(record.sections), "", 0)
            frames.append(frame)
        again = approach.build(program.operator(*schemas), program.emit, reversed(frames))
        for event in events:
            if event.end > again.position or event.watermark is not None:
                again.turn(event)
        again.progress()


def _made_up_events(schemas: Sequence[pa.Schema]) -> list[StreamEvent]:
    """Two stream events of each input, inputs in turns, and the end of time."""
    events, position = [], 0
    for port, schema in [*enumerate(schemas)] * 2:
        batch = pa.RecordBatch.from_arrays([_made_up(each) for each in schema], schema=schema)
        # From bytes, as packets are: compiled code differs for memory that must not be written.
        event = event_of(packet_of(StreamEvent(position, batch, port=port)), schema)
        events.append(replace(event, port=port))
        position += _ROWS
    return [*events, StreamEvent(position, no_tuples(schemas[0]), END_OF_TIME)]


def _made_up(field: pa.Field) -> pa.Array:
    kind, types = field.type, pa.types
    if types.is_string(kind) or types.is_large_string(kind):
        return pa.array(["warm"] * _ROWS, kind)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return pa.array([b"warm"] * _ROWS, kind)
    if types.is_decimal(kind):
        return pa.array([Decimal(0)] * _ROWS, kind)
    if types.is_date32(kind) or types.is_time32(kind):
        return pa.array([1] * _ROWS, pa.int32()).cast(kind)
    return pa.array([1] * _ROWS, pa.int64()).cast(kind, safe=False)


def _warm_up_usual() -> None:
    """The papers' query, which is also the demo's."""
    schema = pa.schema([("key", pa.int32()), ("value", pa.int32()), ("at", pa.timestamp("us"))])
    spec = AggregateSpec(["key"], count_window(10), [Avg("value"), Max("at")])
    warm_up(FragmentProgram(stateful=spec), schema)
    # Few keys never make a table grow, and every recovery of many does.
    for table in (IntegerTable(), IntegerTable(narrow=True), BytesTable()):
        table.reserve(_MANY_KEYS)


_warm_up_usual()

"""Constructing an eventual checkpoint from frames that are not what they should be."""

import numpy as np
import pyarrow as pa
import pytest

from rewake.log.columns import pack_columns
from rewake.log.frame import Frame, Section, SectionKind, TurnRecord, decode_frame, encode_frame
from rewake.log.results import result_batch
from rewake.model.errors import DamagedData, DamagedFrame, DamagedLog
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Avg, Count, First, Stddev, Sum
from rewake.operators.aggregate.operator import Aggregate, AggregateSpec
from rewake.operators.windows.specs import count_window, time_window
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.eventual.reading import construct, pack_parts, unpack_parts
from rewake.recovery.policies.policy import OpenOnly
from rewake.recovery.policies.targets import TargetsPolicy

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("v", pa.int64()), ("t", pa.int64())])
EAGER = {"records": 0, "tuples": 0, "interval_ms": 1, "period_ms": 1, "check_us": 1}
WINDOWS = {
    "tumbling": count_window(3),
    "sliding": count_window(4, 2),
    "gapped": count_window(2, 5),
    "time": time_window(10, 5),
}
SPECS = {
    "one key": lambda window: AggregateSpec(["k"], window, [Sum("v"), First("t")], time="t"),
    "two keys": lambda window: AggregateSpec(["k", "s"], window, [Avg("v")], time="t"),
    "text": lambda window: AggregateSpec(["s"], window, [Count(), Stddev("v")], time="t"),
}


def operator(name="one key", window="tumbling"):
    return Aggregate(SPECS[name](WINDOWS[window]), SCHEMA)


def stored(record: TurnRecord, sequence: int = 0) -> Frame:
    """A record that went through the log."""
    return decode_frame(
        encode_frame(record, log_id=1, epoch=1, sequence=sequence, position=0, durable=0)
    )


def log_of(name="one key", window="tumbling", policy=None):
    """Two turns: some windows with an OPEN, some with a CHECK."""
    cec = ContinuousEventualCheckpointing(operator(name, window), policy or OpenOnly())
    frames = []
    for turn in range(2):
        rows = [{"k": i, "s": "x" * i, "v": i, "t": turn} for i in range(2 * turn, 2 * turn + 3)]
        event = StreamEvent(3 * turn, pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
        frames.append(stored(cec.turn(event).record, turn))
    return frames


def recover(frames, name="one key", window="tumbling"):
    return ContinuousEventualCheckpointing.recover(
        operator(name, window), OpenOnly(), reversed(frames)
    )


def with_section(frame, kind, payload):
    """The same frame, with another payload in one section."""
    sections = [
        Section(each.kind, payload if each.kind == kind else bytes(each.payload), each.output)
        for each in frame.sections
    ]
    record = TurnRecord(
        frame.t_end, frame.timestamp, frame.open_windows, frame.tuples, frame.records, sections
    )
    return stored(record, frame.sequence)


def test_an_empty_log_has_no_checkpoint():
    """Recovery from it starts at the beginning."""
    assert construct([]) is None
    assert recover([]).position == 0


@pytest.mark.parametrize("ids", [[], [5], [0, 3, 9]])
def test_ages_lead_back_to_ids(ids):
    """Also when they need more than 32 bits."""
    for t_end in (9, 2**33):
        wanted = np.array(ids, np.int64)
        payload = memoryview(pack_parts(wanted, t_end, [wanted * 2]))
        found, columns = unpack_parts(payload, t_end)
        assert found.tolist() == ids
        assert columns[0].tolist() == (wanted * 2).tolist()


def test_a_section_without_ages_is_refused():
    """Its first column is of integers."""
    for columns in ([], [np.zeros(2)]):
        with pytest.raises(DamagedFrame, match="column of ages"):
            unpack_parts(memoryview(pack_columns(columns)), 5)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("kind", [SectionKind.OPENS, SectionKind.CHECKS])
def test_footprints_of_any_other_shape_are_refused(name, window, kind):
    """Whatever a section holds instead: damage is told, and nothing else happens."""
    policy = TargetsPolicy(**EAGER) if kind == SectionKind.CHECKS else None
    frames = log_of(name, window, policy)
    whole = [np.array(column) for column in _columns(frames[-1], kind)]
    recover(frames, name, window)
    hostile = [
        whole[:-1],
        [*whole, whole[0]],
        [whole[0]],
        [column[:1] for column in whole[:1]] + whole[1:],
        *[
            [*whole[:place], column[:-1], *whole[place + 1 :]]
            for place, column in enumerate(whole)
            if column.size
        ],
    ]
    for columns in hostile:
        damaged = with_section(frames[-1], kind, pack_columns(columns))
        with pytest.raises(DamagedData):
            recover([*frames[:-1], damaged], name, window)


def _columns(frame, kind):
    ages_and_rest = frame.section(kind)
    assert ages_and_rest is not None
    ids, columns = unpack_parts(ages_and_rest, frame.t_end)
    return [(frame.t_end - ids).astype(np.uint32), *columns]


@pytest.mark.parametrize("name", ["two keys", "text"])
def test_the_log_of_an_operator_with_other_columns_is_refused(name):
    """Rather than read as if it were one's own."""
    frames = log_of(policy=TargetsPolicy(**EAGER))
    with pytest.raises(DamagedData):
        recover(frames, name)


def test_a_log_trimmed_too_far_is_refused_with_what_to_do():
    """It says how many windows are missing and where it looked."""
    frames = log_of()
    with pytest.raises(
        DamagedLog, match=r"holds footprints of .* restore the older segments"
    ) as told:
        recover(frames[-1:])
    assert told.value.sequence == 1


def test_results_of_another_schema_are_refused():
    """A reader that expects other columns is told so."""
    cec = ContinuousEventualCheckpointing(
        Aggregate(AggregateSpec(["k"], count_window(1), [Count()]), SCHEMA), OpenOnly()
    )
    row = pa.RecordBatch.from_pylist([{"k": 1, "s": "", "v": 1, "t": 1}], schema=SCHEMA)
    frame = stored(cec.turn(StreamEvent(0, row)).record)
    assert result_batch(frame, cec.operator.output_schema).to_pylist() == [{"k": 1, "count": 1}]
    with pytest.raises(DamagedFrame, match="not a batch of its columns"):
        result_batch(frame, SCHEMA)

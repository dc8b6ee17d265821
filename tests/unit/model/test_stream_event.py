"""Stream events: positions and splitting."""

import pyarrow as pa

from rewake.model.stream_event import StreamEvent


def test_an_event_ends_where_the_next_one_begins():
    """Positions are consecutive."""
    batch = pa.record_batch([pa.array([1, 2, 3])], ["k"])
    assert StreamEvent(10, batch).end == 13
    assert StreamEvent(10, batch.slice(0, 0)).end == 10


def test_a_split_event_keeps_every_tuple_and_the_watermark_at_its_end():
    """A watermark takes effect behind the last tuple, so the later part has it."""
    event = StreamEvent(10, pa.record_batch([pa.array([1, 2, 3])], ["k"]), watermark=99)
    for position in (10, 11, 13):
        head, rest = event.split(position)
        assert (head.position, head.end, rest.position, rest.end) == (10, position, position, 13)
        assert head.batch.column(0).to_pylist() + rest.batch.column(0).to_pylist() == [1, 2, 3]
        assert (head.watermark, rest.watermark) == (None, 99)

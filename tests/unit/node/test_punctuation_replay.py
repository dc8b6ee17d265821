"""Watermarks and ends that come alone, without a position of their own."""

import pyarrow as pa

from rewake.log.frame import Frame, Section
from rewake.model.stream_event import StreamEvent
from rewake.node.channels.input_merge import InputMerge
from rewake.node.messages import Packet

SCHEMA = pa.schema([("value", pa.int64())])


def _event(position: int, rows: int, watermark: int | None = None) -> StreamEvent:
    values = list(range(position, position + rows))
    return StreamEvent(position, pa.RecordBatch.from_pydict({"value": values}, SCHEMA), watermark)


def _frame(t_end: int, section: Section) -> Frame:
    return Frame(1, 0, 0, t_end, 0, 0, 0, 0, 0, 0, (section,), "segment", 0)


def test_a_channel_has_ended_also_when_something_empty_follows_its_end() -> None:
    """An upstream that was rewound may repeat a watermark behind the end it has announced."""
    merge = InputMerge([SCHEMA])
    merge.offer(0, _event(0, 2))
    merge.offer(0, Packet(2, 2, final=True))
    merge.offer(0, Packet(2, 2))
    while merge.take() is not None:
        pass
    assert merge.ended


def test_replay_does_not_wait_for_a_watermark_that_came_alone() -> None:
    """Whoever said it need not say it again, and it takes no position in the recorded order."""
    merge = InputMerge([SCHEMA, SCHEMA])
    merge.offer(0, _event(0, 2))
    merge.take()
    merge.offer(1, Packet(0, 0, watermark=5))
    merge.take()
    merge.offer(0, _event(2, 1))
    merge.take()
    section = merge.section()
    assert section is not None
    successor = InputMerge([SCHEMA, SCHEMA])
    assert successor.recover([_frame(2, section)], 0) == [0, 0]
    successor.offer(0, _event(0, 2))
    successor.offer(0, _event(2, 1))
    taken = [successor.take(), successor.take()]
    assert [each.here.end for each in taken if each is not None] == [2, 3]
    assert not successor.following


def test_what_is_made_again_has_its_watermarks_again() -> None:
    """A consumer that asks from an earlier position must get the same stream as the first one."""
    merge = InputMerge([SCHEMA])
    for _ in range(2):
        merge.go_to(0, 0)
        merge.offer(0, _event(0, 2, watermark=5))
        merge.offer(0, _event(2, 2, watermark=9))
        taken = [merge.take(), merge.take()]
        assert [each.here.watermark for each in taken if each is not None] == [5, 9]

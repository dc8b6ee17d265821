"""What every source must do, whatever it reads."""

import json
import pickle
from typing import Any

import pyarrow as pa

from rewake.model.connectors import Source, SourceReader
from rewake.model.stream_event import StreamEvent


def read_to_the_end(reader: SourceReader) -> list[StreamEvent]:
    events = []
    while (event := reader.read(0.0)) is not None:
        events.append(event)
    assert reader.ended
    assert reader.read(0.0) is None
    return events


def check_replay(source: Source, shards: int, positions: range | None = None) -> list[pa.Table]:
    """From any position on, each shard is cut the same way; the rows of each shard."""
    tables = []
    for shard in range(shards):
        reader = source.open(shard, shards)
        whole = read_to_the_end(reader)
        end = 0
        for event in whole:
            assert event.start == end
            assert event.batch.schema.equals(source.schema, check_metadata=True)
            end = event.end
        for position in positions or range(end + 1):
            reader.seek(min(position, end))
            again = read_to_the_end(reader)
            assert again == [event for event in whole if event.end > min(position, end)]
        reader.close()
        tables.append(pa.Table.from_batches([event.batch for event in whole], source.schema))
    return tables


def check_value(source: Any) -> None:
    """It travels, and its description is JSON that stays the same on the way."""
    there = pickle.loads(pickle.dumps(source))
    assert there == source
    assert there.describe() == source.describe()
    assert json.loads(json.dumps(source.describe())) == source.describe()

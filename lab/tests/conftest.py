"""Makes the modules beside the tests importable by name, and those that tests of Rewake share."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rewake.model.connectors import SourceReader
from rewake.model.stream_event import StreamEvent

HERE = Path(__file__).parent
UNIT = HERE.parents[1] / "tests" / "unit"
sys.path[:0] = [str(HERE), str(UNIT / "report"), str(UNIT / "connectors")]

from source_checks import check_replay, check_value, read_to_the_end  # noqa: E402


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

"""One Spark session for the whole folder: starting it takes seconds.

Tests that need a session of another kind, or none, run in processes of their own.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rewake.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parent))

from task_vocabulary import require_spark

NODES = 6


@pytest.fixture(scope="module")
def node_session() -> Iterator["SparkSession"]:
    """Return a session with room for six nodes and one task more, one for each file of tests."""
    require_spark()
    session = local_session(cores=1, nodes=NODES, app_name="rewake-tests")
    yield session
    session.stop()


@pytest.fixture
def spark(node_session: "SparkSession") -> "SparkSession":
    """Return the session, for tests that run no nodes."""
    return node_session

"""One Spark session per module that needs one: starting it takes seconds."""

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


@pytest.fixture(scope="module")
def spark() -> Iterator["SparkSession"]:
    """Return a session on whatever Java this machine has."""
    require_spark()
    session = local_session(cores=2, app_name="rewake-tests")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def node_session() -> Iterator["SparkSession"]:
    """Return a session with room for three nodes and one task more."""
    require_spark()
    session = local_session(cores=1, nodes=3, app_name="rewake-tests")
    yield session
    session.stop()

"""One Spark session for all tests that need one: starting it takes seconds."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from rewake.spark import find_java, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """Return a session on whatever Java this machine has."""
    pytest.importorskip("pyspark")
    java = find_java()
    if not java.found:
        pytest.skip(f"no Java for Spark: {java.problems[0]}")
    session = local_session(cores=2, app_name="rewake-tests")
    yield session
    session.stop()

"""The examples' own servers, for their tests: real ones, at ports and in folders that are free."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rewake.spark import find_java, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from servers import nats_server, postgres_server


@pytest.fixture(scope="session")
def nats_address() -> Iterator[str]:
    """Return the address of a broker; tests use streams of their own."""
    pytest.importorskip("nats")
    with nats_server() as address:
        yield address


@pytest.fixture(scope="session")
def postgres_address() -> Iterator[str]:
    """Return the address of an empty database."""
    pytest.importorskip("psycopg")
    with postgres_server() as address:
        yield address


@pytest.fixture
def require_spark() -> None:
    """Skip the test where Spark cannot run."""
    pytest.importorskip("pyspark")
    java = find_java()
    if not java.found:
        pytest.skip(f"no Java for Spark: {java.problems[0]}")


@pytest.fixture(scope="module")
def spark() -> Iterator["SparkSession"]:
    """Return a session for one file of tests."""
    pytest.importorskip("pyspark")
    session = local_session(cores=2, app_name="rewake-examples")
    yield session
    session.stop()

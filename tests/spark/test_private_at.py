"""The state of an operator inside Structured Streaming is its owner's, every file of it."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from structured_vocabulary import end_hosts, expected, results, run_query, write_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder whose shard hosts are gone at the end."""
    yield tmp_path
    if (tmp_path / "state" / "hosts").exists():
        end_hosts(tmp_path)


def modes(at: Path) -> dict[str, int]:
    """The mode of all that is there, by its path."""
    found = {}
    for each in (at, *at.rglob("*")):
        try:
            found[str(each.relative_to(at))] = stat.S_IMODE(each.stat().st_mode)
        except FileNotFoundError:
            continue  # a draft
    return found


def test_every_file_of_an_operators_state_is_its_owners(
    node_session: "SparkSession", folder: Path
) -> None:
    """As it was made; and again after somebody has opened it to everybody."""
    write_input(folder, 2)
    run_query(node_session, folder)
    at = folder / "state"
    made = modes(at)
    assert {"token", "operator.json", "hosts", "shard-0000/LOG"} <= set(made)
    assert {f"{mode:o}" for mode in made.values()} == {"700", "600"}
    end_hosts(folder)
    for each in made:
        if (at / each).exists():
            os.chmod(at / each, 0o755 if (at / each).is_dir() else 0o644)
    write_input(folder, 1, start=2)
    run_query(node_session, folder)
    assert results(folder) == expected(3)
    assert {f"{mode:o}" for mode in modes(at).values()} == {"700", "600"}

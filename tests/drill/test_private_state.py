"""What a real query leaves behind is its owner's, every file of it."""

import os
import stat
from pathlib import Path

import pyarrow as pa

import rewake


def test_every_file_of_a_query_is_its_owners(tmp_path):
    """While it runs (with the token of its clients) and after it, with the widest umask."""
    folder = tmp_path / "above" / "state"
    query = rewake.Query("private")
    table = pa.table({"key": [1, 2] * 500, "value": list(range(1000))})
    averages = query.source("values", rewake.Batches(table.to_batches())).aggregate(
        by="key", window=rewake.count_window(10), avg="value", recover_within="1s"
    )
    averages.to_stream("averages")
    before = os.umask(0)
    try:
        with rewake.start_processes(query, folder) as running:
            running.await_end()
            names = check_private(folder.parent)
            assert "endpoint.json" in names
    finally:
        os.umask(before)
    names = check_private(folder.parent)
    assert {"coordinator.json", "streams.json", "calibration.json", "LOG", "mark", "rates"} <= names


def check_private(folder: Path) -> set[str]:
    """The names of all that is there; AssertionError when others can reach any of it."""
    found = [folder, *folder.rglob("*")]
    for each in found:
        try:
            mode = stat.S_IMODE(each.stat().st_mode)
        except FileNotFoundError:
            continue  # a draft
        assert mode == (0o700 if each.is_dir() else 0o600), f"{each} has mode {mode:04o}"
    return {each.name for each in found}

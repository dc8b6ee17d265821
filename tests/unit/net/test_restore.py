"""What a backup's manifest may say: names of files inside of it, with sizes and digests."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from rewake.log.files.sealed import sealed
from rewake.model.errors import DamagedData
from rewake.net.queries.backup import FORMAT, MANIFEST
from rewake.net.queries.restore import restore_backup

DATA = b"hostile"
ENTRY = {"size": len(DATA), "sha256": sha256(DATA).hexdigest()}
BODY: dict[str, Any] = {
    "format": FORMAT,
    "query": "q",
    "made_at": "2026-01-01T00:00:00Z",
    "logs": {},
    "sinks": [],
    "files": {},
}


def backup_in(folder: Path, body: dict[str, Any]) -> Path:
    """A backup whose checksum is right, whoever wrote it."""
    backup = folder / "backup"
    backup.mkdir()
    (backup / MANIFEST).write_bytes(sealed(body))
    return backup


@pytest.mark.parametrize(
    "name", ["../outside", "a/../../outside", "/{folder}/outside", "", ".", "a//b", "a\0b", "a/./b"]
)
def test_no_file_of_a_backup_is_restored_outside_of_the_folder(tmp_path: Path, name: str) -> None:
    """Whoever hands out a backup must not choose what is overwritten."""
    name = name.replace("{folder}", str(tmp_path))
    backup = backup_in(tmp_path, BODY | {"files": {name: ENTRY}})
    (tmp_path / "outside").write_bytes(DATA)
    with pytest.raises(DamagedData, match="names a file that"):
        restore_backup(backup, tmp_path / "deep" / "to")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "outside"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"files": []},
        {"files": {"a": []}},
        {"files": {"a": {"size": "7", "sha256": ENTRY["sha256"]}}},
        {"files": {"a": {"size": -1, "sha256": ENTRY["sha256"]}}},
        {"files": {"a": {"size": 7}}},
        {"query": 1},
        {"logs": []},
        {"logs": {"a": {"tuples": "many"}}},
        {"sinks": "one"},
        {"sinks": [1]},
        {"made_at": None},
    ],
)
def test_a_manifest_of_other_kinds_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """With a word, not with an error of Python's."""
    with pytest.raises(DamagedData, match=r"manifest\.json is damaged"):
        restore_backup(backup_in(tmp_path, BODY | wrong), tmp_path / "to")


@pytest.mark.parametrize("field", ["query", "made_at", "logs", "sinks", "files"])
def test_a_manifest_that_lacks_something_is_refused(tmp_path: Path, field: str) -> None:
    """As one that is damaged."""
    body = {name: value for name, value in BODY.items() if name != field}
    with pytest.raises(DamagedData, match=r"manifest\.json is damaged"):
        restore_backup(backup_in(tmp_path, body), tmp_path / "to")

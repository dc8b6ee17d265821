"""State is its owner's: how its folders and files are made, and put right."""

import logging
import os
import stat
from pathlib import Path

import pytest
from log_vocabulary import sample_turn

from rewake.cli.doctor import examine
from rewake.connectors.files.part_folder import PartFolder
from rewake.stores import LocalStore, create_log, open_log_reader, open_log_writer
from rewake.stores.private import exposed, put_right


@pytest.fixture(autouse=True, params=[0o000, 0o022, 0o077], ids=oct)
def umask(request):
    """Whatever the user's umask is."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> set[str]:
    """The modes of a folder and all below it: d0700, f0600."""
    return {
        f"{'d' if each.is_dir() else 'f'}{stat.S_IMODE(each.stat().st_mode):04o}"
        for each in (folder, *folder.rglob("*"))
    }


def written_log(folder: Path) -> None:
    create_log(folder, "log")
    with open_log_writer(folder) as writer:
        for number in range(5):
            writer.append(sample_turn(number))


def as_of_an_older_version(folder: Path) -> None:
    for each in (folder, *folder.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)


def test_a_log_is_made_for_its_owner_alone(tmp_path):
    """Its folder, the folders above it that were missing, and every file."""
    written_log(tmp_path / "state" / "log")
    assert modes(tmp_path / "state") == {"d0700", "f0600"}


def test_a_file_is_never_open_to_others_not_even_for_a_moment(tmp_path, monkeypatch):
    """Nothing is changed after it was made."""
    monkeypatch.setattr(os, "chmod", lambda *_: pytest.fail("made, and changed later"))
    written_log(tmp_path / "log")


def test_a_log_of_an_older_version_is_put_right_when_it_is_written(tmp_path, caplog):
    """With a word in the log; reading it changes nothing."""
    folder = tmp_path / "log"
    written_log(folder)
    as_of_an_older_version(folder)
    with open_log_reader(folder):
        assert modes(folder) == {"d0755", "f0644"}
    with caplog.at_level(logging.WARNING, "rewake.stores"), open_log_writer(folder):
        pass
    assert modes(folder) == {"d0700", "f0600"}
    assert f"others could read state in {folder}" in caplog.text


def test_a_folder_without_state_is_left_as_it_is(tmp_path):
    """Also what is not ours in a folder with state."""
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "notes.txt").chmod(0o644)
    tmp_path.chmod(0o755)
    put_right(tmp_path)
    assert modes(tmp_path) == {"d0755", "f0644"}
    (tmp_path / "coordinator.json").touch(0o644)
    put_right(tmp_path)
    assert stat.S_IMODE((tmp_path / "notes.txt").stat().st_mode) == 0o644
    assert exposed(tmp_path) == []


def test_an_empty_folder_that_is_given_for_state_becomes_private(tmp_path):
    """It was made for this."""
    folder = tmp_path / "given"
    folder.mkdir()
    folder.chmod(0o755)
    LocalStore(folder, create=True).close()
    assert modes(folder) == {"d0700"}


def test_files_of_a_sink_go_by_the_umask(tmp_path, umask):
    """They are meant for others."""
    folder = PartFolder(tmp_path / "out")
    folder.draft("part", b"rows")
    folder.publish("part")
    folder.close()
    found = stat.S_IMODE((tmp_path / "out" / "part").stat().st_mode)
    assert found == 0o666 & ~umask


def test_doctor_says_what_others_can_read(tmp_path):
    """And how to mend it; of state that is private it says that."""
    folder = tmp_path / "state"
    written_log(folder)
    finding = {each.name: each for each in examine(tmp_path)}["privacy"]
    assert finding.status == "ok"
    as_of_an_older_version(folder)
    finding = {each.name: each for each in examine(tmp_path)}["privacy"]
    assert finding.status == "warn"
    assert str(folder) in finding.seen
    assert "go-rwx" in finding.remedy

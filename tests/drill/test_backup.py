"""`rewake backup` copies a query that runs, `rewake restore` brings it back, and it goes on."""

import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from drill_vocabulary import until
from history_vocabulary import SCHEMA, History

from rewake.log.files.sealed import sealed, unsealed
from rewake.model.errors import DamagedData, HistoryMismatch, UsageError
from rewake.net.queries.backup import make_backup
from rewake.net.queries.processes import Processes
from rewake.net.queries.restore import restore_backup
from rewake.net.queries.running import RunningQuery


def rewake(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    command = [sys.executable, "-c", "from rewake.cli.app import main; main()", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def elsewhere(history: History, folder: Path) -> History:
    """The query in another folder, with its sink emptied."""
    again = History(history.base, history.entries)
    again.folder = folder
    shutil.rmtree(history.out)
    return again


def moved(history: History, folder: Path, out: Path) -> History:
    """The query in another folder, with another sink."""
    again = History(history.base, history.entries)
    again.folder, again.out = folder, out
    return again


def go_on(history: History, count: int) -> list[int]:
    """Send some more; what the sink has when it has as much as the entries ever took."""
    with history.running() as query:
        taken = 0
        for entry in history.entries:
            with query.produce(entry) as producer:
                first = -1000 * (1 + history.entries.index(entry))
                producer.send(pa.record_batch([range(first, first + count)], schema=SCHEMA))
                producer.flush()
                taken += producer.position
        until(lambda: query.await_end(0.0) or len(history.delivered()) >= taken)
    return history.delivered()


def test_a_query_that_runs_is_copied_and_goes_on_elsewhere(tmp_path: Path) -> None:
    """Everything acknowledged before the copy is in it, once; the query does not notice."""
    history = History(tmp_path, ("one", "two"))
    with history.running() as query:
        history.send(query, 50)
        before = set(history.sent)
        sending = threading.Thread(target=lambda: [history.send(query, 20) for _ in range(8)])
        sending.start()
        made = make_backup(history.folder, tmp_path / "backup")
        sending.join()
        until(lambda: query.await_end(0.0) or len(history.delivered()) >= len(history.sent))
        assert {each["epoch"] for each in query.status().values()} == {1}, "nobody was disturbed"
    history.check()
    assert made.sinks == ["sink"]
    assert set(made.logs) == {"one", "two", "union"}
    restore_backup(tmp_path / "backup", tmp_path / "again")
    found = go_on(elsewhere(history, tmp_path / "again"), 10)
    assert before <= set(found)
    assert set(found) <= set(history.sent) | {*range(-1000, -990), *range(-2000, -1990)}
    assert len(found) == len(set(found)), "repeated"


def test_copies_while_nodes_are_killed_are_whole(tmp_path: Path) -> None:
    """Epochs move while files are copied: each copy is of one history all the same."""
    history = History(tmp_path, ("one", "two"))
    sent = []
    with history.running() as query:
        for number, victim in enumerate(("union", "one", "sink")):
            history.send(query, 30)
            sent.append(set(history.sent))
            query.signal_node(victim)
            make_backup(history.folder, tmp_path / f"backup-{number}")
            until(lambda victim=victim: victim in query.running)
        until(lambda: query.await_end(0.0) or len(history.delivered()) >= len(history.sent))
    for number, before in enumerate(sent):
        restore_backup(tmp_path / f"backup-{number}", tmp_path / f"again-{number}")
        found = go_on(elsewhere(history, tmp_path / f"again-{number}"), 1)
        assert before <= set(found)
        assert len(found) == len(set(found)), "repeated"


def test_a_sink_that_is_newer_than_the_backup_is_refused(tmp_path: Path) -> None:
    """And one of its time goes on; both keep what they have."""
    history = History(tmp_path)
    history.run(20)
    make_backup(history.folder, tmp_path / "backup")
    shutil.copytree(history.out, tmp_path / "out-then")
    history.run(20)
    shutil.rmtree(history.folder)
    restore_backup(tmp_path / "backup", history.folder)
    assert "the log behind 'one' ends at 20" in history.fails()
    shutil.rmtree(history.out)
    shutil.copytree(tmp_path / "out-then", history.out)
    history.sent = history.sent[:20]
    history.run(30)
    history.check()


def test_a_restored_query_goes_on_elsewhere_with_a_copy_of_its_sink(tmp_path: Path) -> None:
    """Both at other paths; the original goes on beside it, and neither takes the other's sink."""
    history = History(tmp_path)
    history.run(20)
    shutil.copytree(history.out, tmp_path / "out-then")
    history.run(10)
    make_backup(history.folder, tmp_path / "backup")
    restore_backup(tmp_path / "backup", tmp_path / "again")
    history.run(10)
    again = moved(history, tmp_path / "again", tmp_path / "out-then")
    again.sent = history.sent[:30]
    again.run(40)
    again.check()
    history.run(50)
    history.check()
    theirs = moved(history, history.folder, again.out)
    assert "an older copy was continued" in theirs.fails()
    assert again.delivered() == sorted(again.sent)


def test_a_sink_elsewhere_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """Not its path says whose it is, but what it holds: here it is newer than what was restored."""
    history = History(tmp_path)
    history.run(20)
    make_backup(history.folder, tmp_path / "backup")
    history.run(10)
    shutil.copytree(history.out, tmp_path / "out-now")
    restore_backup(tmp_path / "backup", tmp_path / "again")
    said = moved(history, tmp_path / "again", tmp_path / "out-now").fails()
    assert f"the sink 'sink' in {tmp_path / 'out-now'} has consumed 'one' up to position 30" in said
    assert "ends at 20" in said


def test_a_folder_of_before_opens_and_may_then_have_its_sink_elsewhere(tmp_path: Path) -> None:
    """Where a sink writes was part of the query: the old fingerprint is known, and said why."""
    history = History(tmp_path)
    as_before(history)
    elsewhere = moved(history, history.folder, tmp_path / "other")
    with pytest.raises(UsageError, match=r"start the query once with the sink where it was") as no:
        elsewhere.run(1)
    assert str(history.folder) in str(no.value)
    history.run(10)
    history.check()
    shutil.copytree(history.out, tmp_path / "other")
    elsewhere.sent = list(history.sent)
    elsewhere.run(10)
    elsewhere.check()


def as_before(history: History) -> None:
    """Run a query as versions did for which the place of a sink was part of it."""
    plan = history.query().plan()
    then = replace(plan, fingerprint=plan.former_fingerprint, former_fingerprint="")
    with RunningQuery(then, history.folder, Processes()) as query:
        history.send(query, 10)
        until(lambda: query.await_end(0.0) or len(history.delivered()) == 10)
    path = history.folder / "coordinator.json"
    state = unsealed(path.read_bytes(), "", "")
    del state["places_left_out"]
    path.write_bytes(sealed(state))
    (history.out / "_origins.json").unlink()


def test_a_copy_by_hand_with_a_consumer_ahead_of_its_upstream_is_refused(tmp_path: Path) -> None:
    """As `cp -r` makes one when it comes to the producers first."""
    history = History(tmp_path, ("one", "two"))
    copy = tmp_path / "copy" / "query"
    with history.running() as query:
        history.send(query, 20)
        until(lambda: len(history.delivered()) == 40)
        for part in ("nodes/one", "nodes/two", "coordinator.json"):
            (copy / part).parent.mkdir(parents=True, exist_ok=True)
            whole = shutil.copytree if (history.folder / part).is_dir() else shutil.copy2
            whole(history.folder / part, copy / part)
        history.send(query, 20)
        until(lambda: len(history.delivered()) == 80)
        for part in ("nodes/union", "origins"):
            shutil.copytree(history.folder / part, copy / part)
    again = elsewhere(history, copy)
    assert "older than what was made from it" in again.fails()
    with pytest.raises(HistoryMismatch, match="'union' has consumed 'one' up to position 40, but"):
        make_backup(again.folder, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


@pytest.mark.parametrize("harm", ["flip", "cut", "delete", "manifest"])
def test_a_backup_that_changed_is_not_restored(tmp_path: Path, harm: str) -> None:
    """Not a byte of it: the folder is not there afterwards."""
    history = History(tmp_path)
    history.run(20)
    make_backup(history.folder, tmp_path / "backup")
    segment = next((tmp_path / "backup" / "nodes" / "one").glob("segment-*.log"))
    if harm == "manifest":
        segment = tmp_path / "backup" / "manifest.json"
        segment.write_text(segment.read_text().replace('"entered"', '"another"'))
    elif harm == "delete":
        segment.unlink()
    elif harm == "cut":
        os.truncate(segment, segment.stat().st_size - 1)
    else:
        data = bytearray(segment.read_bytes())
        data[len(data) // 2] ^= 1
        segment.write_bytes(data)
    with pytest.raises(DamagedData, match="use another backup"):
        restore_backup(tmp_path / "backup", tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("harm", ["older", "missing"])
def test_a_log_that_is_older_than_the_coordinator_knows_is_not_copied(
    tmp_path: Path, harm: str
) -> None:
    """In the copy nobody would remember that there had been more."""
    history = History(tmp_path, ("one", "two"))
    history.run(20)
    history.keep("then")
    history.run(20)
    shutil.rmtree(history.folder / "nodes" / "one")
    if harm == "older":
        history.put_back("nodes/one", "then")
    with pytest.raises(HistoryMismatch, match="the log of one is"):
        make_backup(history.folder, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_a_backup_is_not_made_inside_of_what_it_copies(tmp_path: Path) -> None:
    """The next one would copy it, too."""
    history = History(tmp_path)
    history.run(5)
    with pytest.raises(UsageError, match="is inside of"):
        make_backup(history.folder, history.folder / "backups" / "one")


def test_a_backup_is_restored_to_the_folder_one_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If that is empty, it may be given as a dot."""
    history = History(tmp_path)
    history.run(5)
    made = make_backup(history.folder, tmp_path / "backup")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert restore_backup(tmp_path / "backup", Path()) == made
    assert (tmp_path / "here" / "coordinator.json").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """Neither by a backup nor by a restore; and what is no query, or no backup, is refused."""
    history = History(tmp_path)
    history.run(1)
    make_backup(history.folder, tmp_path / "backup")
    with pytest.raises(UsageError, match="is not empty"):
        make_backup(history.folder, tmp_path / "backup")
    with pytest.raises(UsageError, match="is not empty"):
        restore_backup(tmp_path / "backup", history.folder)
    with pytest.raises(UsageError, match="is not the folder of a query"):
        make_backup(history.out, tmp_path / "other")
    with pytest.raises(UsageError, match="is not a backup"):
        restore_backup(history.folder, tmp_path / "other")


def test_no_token_is_in_a_backup(tmp_path: Path) -> None:
    """Who can read the copy must not be able to join the query."""
    history = History(tmp_path)
    with history.running() as query:
        history.send(query, 1)
        token = json.loads((history.folder / "endpoint.json").read_text())["token"]
        make_backup(history.folder, tmp_path / "backup")
    files = [path for path in (tmp_path / "backup").rglob("*") if path.is_file()]
    assert files
    assert not any(token.encode() in path.read_bytes() for path in files)
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)


def test_the_commands_say_what_they_copied_and_what_they_cannot(tmp_path: Path) -> None:
    """For people and for programs."""
    history = History(tmp_path)
    history.run(5)
    made = rewake("backup", history.folder, tmp_path / "backup")
    assert made.returncode == 0, made.stderr
    assert "query 'entered' as of" in made.stdout
    assert "outside of the folder (sink)" in made.stdout
    assert "copied the log of one" in made.stderr
    brought = rewake("restore", tmp_path / "backup", tmp_path / "again", "--json")
    assert brought.returncode == 0, brought.stderr
    about = json.loads(brought.stdout)
    assert about["query"] == "entered"
    assert about["logs"]["one"]["tuples"] == 5
    again = rewake("restore", tmp_path / "backup", tmp_path / "again")
    assert (again.returncode, again.stdout) == (2, "")

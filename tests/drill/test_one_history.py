"""Parts of a query from different times are refused: nothing is lost without a word."""

import json
import shutil
from itertools import product
from pathlib import Path

import pytest
from drill_vocabulary import PATIENCE_SECONDS, until
from history_vocabulary import History, StoredHistory, filtered
from typer.testing import CliRunner

import rewake
from rewake.cli.app import app
from rewake.log.files.sealed import sealed, unsealed
from rewake.model.errors import DamagedData, HistoryMismatch, QueryFailed, UsageError

LOG = "nodes/one"
# Both kinds of sink that say whose they are.
WITH_EITHER_SINK = pytest.mark.parametrize("make", [History, StoredHistory], ids=["files", "table"])


@pytest.mark.parametrize("gone", ["older", "deleted"])
def test_an_entrys_log_that_lost_tuples_is_refused(tmp_path: Path, gone: str) -> None:
    """The sink is newer: 60 tuples more would have been taken for ones that it has."""
    history = History(tmp_path)
    history.run(20)
    history.keep("then")
    history.run(80)
    history.put_back(LOG, "then")
    if gone == "deleted":
        shutil.rmtree(history.folder / LOG)
    assert "the log of one is" in history.fails()
    history.put_back(LOG, "then")
    assert "older than the coordinator" in history.fails(), "again, however often"


def test_a_producer_hears_that_the_parts_are_of_different_times(tmp_path: Path) -> None:
    """The same error as the driver's, whoever asks first."""
    history = History(tmp_path)
    history.run(20)
    history.keep("then")
    history.run(80)
    history.put_back(LOG, "then")
    with history.running() as query:
        until(lambda: not query.active)
        with pytest.raises(HistoryMismatch, match="older than the coordinator"):
            query.produce("one")


def test_an_older_copy_within_one_epoch_is_refused_too(tmp_path: Path) -> None:
    """A copy made while the node ran: not the epoch tells the two apart, but where they end."""
    history = History(tmp_path)
    with history.running() as query:
        history.send(query, 20)
        shutil.copytree(history.folder, tmp_path / "then" / "query")
        history.send(query, 80)
        until(lambda: len(history.delivered()) == 100)
    history.put_back(LOG, "then")
    assert "ends at frame" in history.fails()


@WITH_EITHER_SINK
def test_a_sink_that_is_newer_than_everything_else_is_refused(
    tmp_path: Path, make: type[History]
) -> None:
    """Its position is beyond the log's end; nothing else could tell."""
    history = make(tmp_path)
    history.run(20)
    history.keep("then")
    history.run(30)
    for part in (LOG, "coordinator.json", "origins"):
        history.put_back(part, "then")
    said = history.fails()
    assert f"the sink 'sink' in {history.where} has consumed 'one' up to position 50" in said
    assert "the log behind 'one' ends at 20" in said
    assert f"this folder is {history.folder}" in said
    assert "put a copy of the sink in its place" in said


def test_the_sink_is_named_that_is_newer_than_the_log_behind_a_filter(tmp_path: Path) -> None:
    """The filter only passes on what the sink asks for; `rewake restore` brings no sink back."""
    history = History(tmp_path, query=filtered)
    history.run(20)
    history.keep("then")
    history.run(30)
    for part in (LOG, "coordinator.json", "origins"):
        history.put_back(part, "then")
    said = history.fails()
    assert f"the sink 'sink' in {history.out} has consumed 'odd' up to position 50" in said
    assert "the log behind 'odd' ends at 20" in said
    assert "rewake restore" not in said


@WITH_EITHER_SINK
def test_a_past_that_was_written_over_an_older_copy_is_told_from_the_first(
    tmp_path: Path, make: type[History]
) -> None:
    """Epochs and positions are the same again, and what is there is something else."""
    history = make(tmp_path)
    history.run(20)
    history.keep("then")
    history.run(30)
    history.keep("now")
    for part in (LOG, "coordinator.json", "origins", "out"):
        history.put_back(part, "then")
    history.sent = history.sent[:20]
    history.run(60)
    history.check()
    for part in ("origins", "out"):
        history.put_back(part, "now")
    assert "an older copy was continued" in history.fails()


@WITH_EITHER_SINK
def test_a_sink_of_another_branch_is_refused(tmp_path: Path, make: type[History]) -> None:
    """This folder knows its own past well; only the sink knows that its tuples are of another."""
    history = make(tmp_path)
    history.run(20)
    history.keep("then")
    history.run(30)
    history.keep("now")
    for part in (LOG, "coordinator.json", "origins", "out"):
        history.put_back(part, "then")
    history.sent = history.sent[:20]
    history.run(60)
    history.keep("later")
    history.put_back("out", "now")
    before = history.sink()
    assert "an older copy was continued" in history.fails()
    assert history.sink() == before
    history.put_back("out", "later")
    history.run(10)
    history.check()


@WITH_EITHER_SINK
def test_two_folders_that_write_to_one_sink_are_told_apart(
    tmp_path: Path, make: type[History]
) -> None:
    """Each has come to where the sink is: rows of both would be in it, and of both be missing."""
    one, two = make(tmp_path / "one"), make(tmp_path / "two")
    one.run(50)
    two.run(50)
    shutil.rmtree(two.out)
    two.out = one.out
    before = one.sink()
    said = two.fails()
    assert f"the sink 'sink' in {one.where} has consumed 'one' up to position 50" in said
    assert f"(written by the query in {one.folder}) from log" in said
    assert f"this folder is {two.folder}" in said
    assert "give this query a sink of its own" in said
    assert one.sink() == before
    one.run(10)
    one.check()


@WITH_EITHER_SINK
def test_a_query_that_runs_does_not_notice_that_another_wants_its_sink(
    tmp_path: Path, make: type[History]
) -> None:
    """Opening a sink fences who writes there: whose it is, is found out before."""
    one, two = make(tmp_path / "one"), make(tmp_path / "two")
    two.out = one.out
    with one.running() as query:
        one.send(query, 50)
        until(lambda: len(one.delivered()) == 50)
        said = two.fails()
        assert f"this folder is {two.folder}" in said, "a new folder, that knows of no log yet"
        one.send(query, 10)
        until(lambda: len(one.delivered()) == 60)
        assert {each["epoch"] for each in query.status().values()} == {1}, "nobody was disturbed"
    one.check()


def test_a_sink_that_does_not_say_whose_it_is_is_bound_by_the_next_commit(tmp_path: Path) -> None:
    """As sinks were before they said so."""
    history = History(tmp_path)
    history.run(20)
    (history.out / "_origins.json").unlink()
    history.run(20)
    history.check()
    bound = unsealed((history.out / "_origins.json").read_bytes(), "", "")
    assert bound["folder"] == str(history.folder)
    assert set(bound["channels"]) == {"0"}


def test_a_sink_that_was_changed_where_it_says_whose_it_is_is_damaged(tmp_path: Path) -> None:
    """It has a checksum: another query's would be taken for this one's."""
    history = History(tmp_path)
    history.run(5)
    path = history.out / "_origins.json"
    path.write_text(path.read_text().replace(str(history.folder), "/elsewhere"))
    with pytest.raises(QueryFailed, match=r"_origins\.json is damaged"), history.running() as query:
        query.await_end(PATIENCE_SECONDS)


@WITH_EITHER_SINK
def test_what_a_sink_says_counts_more_than_what_the_folder_remembers(
    tmp_path: Path, make: type[History]
) -> None:
    """A folder whose memory is older, or gone, is one history with its sink all the same."""
    history = make(tmp_path)
    history.run(20)
    history.keep("then")
    history.run(20)
    history.put_back("origins", "then")
    history.run(20)
    shutil.rmtree(history.folder / "origins")
    history.run(20)
    history.check()


def test_a_log_of_another_branch_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    """Its epochs are the same numbers; the right log still fits when it is put back."""
    history = History(tmp_path)
    history.run(20)
    history.keep("then")
    history.run(30)
    history.keep("other branch")
    for part in (LOG, "coordinator.json", "origins", "out"):
        history.put_back(part, "then")
    history.sent = history.sent[:20]
    history.run(60)
    history.keep("now")
    history.put_back(LOG, "other branch")
    assert "a copy that was continued elsewhere" in history.fails()
    history.put_back(LOG, "now")
    history.run(10)
    history.check()


def test_a_unions_log_from_an_older_copy_is_refused(tmp_path: Path) -> None:
    """Its inputs would meet in another order: some lost, as many repeated."""
    history = History(tmp_path, ("one", "two"))
    history.run(50)
    history.keep("then")
    history.run(50)
    history.put_back("nodes/union", "then")
    assert "the log of union is older" in history.fails()


def test_a_start_that_is_refused_leaves_what_the_right_parts_fit_to(tmp_path: Path) -> None:
    """All logs and the coordinator are put back by mistake; what nodes remember is newer."""
    history = History(tmp_path, ("one", "two"))
    history.run(50)
    history.keep("then")
    history.run(50)
    history.keep("now")
    for part in ("nodes", "coordinator.json"):
        history.put_back(part, "then")
    assert "of another time" in history.fails()
    for part in ("nodes", "coordinator.json"):
        history.put_back(part, "now")
    history.run(10)
    history.check()


def test_a_coordinator_that_is_older_than_a_log_ends_the_query(tmp_path: Path) -> None:
    """It would give epochs again that were given: attempts would be fenced without end."""
    history = History(tmp_path)
    history.run(20)
    history.keep("then")
    history.run(20)
    history.put_back("coordinator.json", "then")
    assert "newer than the coordinator's state" in history.fails()
    (history.folder / "coordinator.json").unlink()
    assert "newer than the coordinator's state" in history.fails(), "and if it is not there at all"


def test_a_sink_that_is_older_is_filled_again(tmp_path: Path) -> None:
    """What it misses is still in the log, and comes exactly once."""
    history = History(tmp_path)
    history.run(20)
    history.keep("then")
    history.run(20)
    history.put_back("out", "then")
    assert len(history.delivered()) == 20
    history.run(20)
    history.check()


def test_all_parts_of_one_time_go_on(tmp_path: Path) -> None:
    """A copy of everything, made while nothing ran, is one history."""
    history = History(tmp_path, ("one", "two"))
    history.run(20)
    history.keep("then")
    sent = list(history.sent)
    history.run(20)
    shutil.rmtree(history.folder)
    shutil.copytree(tmp_path / "then" / "query", history.folder)
    history.put_back("out", "then")
    history.sent = sent
    history.run(30)
    history.check()


# --- another query's folder ----------------------------------------------------------------------


def test_a_folder_of_another_query_is_named(tmp_path: Path) -> None:
    """By who starts a query in it, and by `rewake explain`, whose figures would be another's."""
    history = History(tmp_path)
    history.run(1)
    other = filtered(tmp_path / "other")
    with pytest.raises(UsageError, match="holds the state of another query") as refused:
        rewake.start_processes(other, history.folder)
    assert str(refused.value).startswith(f"{history.folder} holds the state of another query ('ent")
    program = tmp_path / "filtered_numbers.py"
    program.write_text(
        "from pathlib import Path\nfrom history_vocabulary import filtered\n"
        f"query = filtered(Path({str(tmp_path / 'other')!r}))\n"
    )
    told = CliRunner().invoke(app, ["explain", str(program), "--folder", str(history.folder)])
    assert isinstance(told.exception, UsageError)
    assert f"{history.folder} holds the state of another query ('entered'" in str(told.exception)
    assert CliRunner().invoke(app, ["explain", str(program)]).exit_code == 0


# --- the coordinator's own file ------------------------------------------------------------------


@pytest.mark.parametrize("epoch", ["2", -1, 1 << 62, 1.5, None, True])
def test_an_epoch_that_no_coordinator_gives_is_refused(tmp_path: Path, epoch: object) -> None:
    """With what to do, also when the checksum is right."""
    history = History(tmp_path)
    history.run(1)
    path = history.folder / "coordinator.json"
    state = unsealed(path.read_bytes(), "", "")
    state["epochs"]["one"] = epoch
    path.write_bytes(sealed(state))
    with pytest.raises(DamagedData, match=r"impossible numbers\); bring"):
        rewake.start_processes(history.query(), history.folder)


def test_a_changed_epoch_fails_the_checksum(tmp_path: Path) -> None:
    """One digit, and the file is still JSON."""
    history = History(tmp_path)
    history.run(1)
    path = history.folder / "coordinator.json"
    whole = json.loads(path.read_bytes())
    whole["body"]["epochs"]["one"] += 1
    path.write_text(json.dumps(whole))
    with pytest.raises(DamagedData, match=r"coordinator\.json is damaged \(it fails its"):
        rewake.start_processes(history.query(), history.folder)


# --- every part at every time --------------------------------------------------------------------

PARTS = ("nodes/one", "nodes/union", "coordinator.json", "origins", "out")
# Of one time; and with a sink of an earlier one, which is filled again.
FITTING = ("aaaaa", "bbbbb", "bbbba")


@pytest.mark.soak
@pytest.mark.parametrize("times", list(product("ab", repeat=len(PARTS))), ids="".join)
def test_every_mixture_of_two_times_is_refused_or_exact(
    tmp_path: Path, times: tuple[str, ...]
) -> None:
    """Whatever part is of whatever time: output equals what was acknowledged, or the query ends.

    What only an entry's log knew of the later time is gone when all parts are of the earlier one.
    """
    history = History(tmp_path, ("one", "two"))
    history.run(20)
    history.keep("a")
    early = list(history.sent)
    history.run(20)
    history.keep("b")
    for part, time in zip(PARTS, times, strict=True):
        history.put_back(part, time)
    history.put_back("nodes/two", times[0])  # with its sister, or few mixtures would be left
    if "b" not in {time for part, time in zip(PARTS, times, strict=True) if part != "origins"}:
        history.sent = early  # origins say of what others have where it is from, and have nothing
    try:
        history.run(20)
    except HistoryMismatch:
        assert "".join(times) not in FITTING, "one history was refused"
        return
    history.check()

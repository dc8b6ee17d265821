"""Parts of a query from different times are refused: nothing is lost without a word."""

import json
import shutil
from itertools import product
from pathlib import Path

import pytest
from drill_vocabulary import until
from history_vocabulary import History

import rewake
from rewake.log.sealed import sealed, unsealed
from rewake.model.errors import DamagedData, HistoryMismatch

LOG = "nodes/one"


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


def test_a_sink_that_is_newer_than_everything_else_is_refused(tmp_path: Path) -> None:
    """Its position is beyond the log's end; nothing else could tell."""
    history = History(tmp_path)
    history.run(20)
    history.keep("then")
    history.run(30)
    for part in (LOG, "coordinator.json", "origins"):
        history.put_back(part, "then")
    assert "'sink' asks for position 50, but the log ends at 20" in history.fails()


def test_a_past_that_was_written_over_an_older_copy_is_told_from_the_first(tmp_path: Path) -> None:
    """Epochs and positions are the same again, and what is there is something else."""
    history = History(tmp_path)
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
        assert len(set(times)) > 1, "one time is no mixture"
        return
    history.check()

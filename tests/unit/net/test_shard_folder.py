"""The folder of an operator inside micro-batches."""

from pathlib import Path

import pytest

from rewake.model.errors import DamagedLog, OtherOperator, OtherQuery, UsageError
from rewake.net.shard_folder import Owner, ShardFolder, holder_text
from rewake.node.shard_batches import BatchIdentity
from rewake.stores import create_log, open_log_writer

WANTED = {"operator": {"by": ["k"]}, "columns": [["k", "int64"]], "shards": 2}
MINE, OTHER = bytes(range(16)), bytes(16)


def test_the_owner_of_a_shard_is_the_holder_of_its_newest_claim(tmp_path: Path) -> None:
    """Nobody at first; then whoever claimed last, if it can be asked."""
    folder = ShardFolder(str(tmp_path))
    assert folder.owner(0) == Owner(-1, None)
    create_log(folder.shard(0), "shard")
    with open_log_writer(folder.shard(0), epoch=4, holder=holder_text(("127.0.0.1", 4711))):
        assert folder.owner(0) == Owner(4, ("127.0.0.1", 4711))
    with open_log_writer(folder.shard(0), epoch=5, holder="somebody else"):
        assert folder.owner(0) == Owner(5, None)


def test_an_owner_on_the_loopback_of_another_machine_cannot_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same address means this machine here."""
    folder = ShardFolder(str(tmp_path))
    create_log(folder.shard(0), "shard")
    with open_log_writer(folder.shard(0), epoch=1, holder=holder_text(("127.0.0.1", 4711))):
        monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
        assert folder.owner(0) == Owner(1, None)


def test_the_first_to_say_what_computes_wins(tmp_path: Path) -> None:
    """Saying the same again is fine; anything else is refused, and changes nothing."""
    folder = ShardFolder(str(tmp_path / "at"))
    assert not folder.check_operator(WANTED)
    folder.publish_operator(WANTED)
    folder.publish_operator(WANTED)
    assert folder.check_operator(WANTED)
    for name, other in (("operator", {"by": ["x"]}), ("columns", []), ("shards", 3)):
        with pytest.raises(OtherOperator, match=f"its {name} is"):
            folder.publish_operator(WANTED | {name: other})
    assert folder.check_operator(WANTED)


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    """A log, a stream, a file that cannot be read, a later version's."""
    create_log(tmp_path / "log", "other")
    with pytest.raises(OtherOperator, match="folder of its own"):
        ShardFolder(str(tmp_path / "log")).check_operator(WANTED)
    for text, error in (("not json", DamagedLog), ('{"format": 99}', UsageError)):
        (tmp_path / "operator.json").write_text(text)
        with pytest.raises(error):
            ShardFolder(str(tmp_path)).check_operator(WANTED)


def test_only_the_highest_note_of_an_empty_batch_is_kept(tmp_path: Path) -> None:
    """However often and in whichever order they are made; another query's are refused."""
    folder = ShardFolder(str(tmp_path))
    assert folder.noted() is None
    for number in (3, 5, 5, 4, 11):
        folder.note_empty(BatchIdentity(MINE, number))
    assert folder.noted() == BatchIdentity(MINE, 11)
    assert len(list((tmp_path / "empty").iterdir())) == 1
    with pytest.raises(OtherQuery):
        folder.note_empty(BatchIdentity(OTHER, 12))

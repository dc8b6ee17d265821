"""The folder of an operator inside micro-batches."""

from pathlib import Path

import pytest

from rewake.log.files.sealed import sealed
from rewake.model.errors import DamagedLog, OtherOperator, UsageError
from rewake.net.shards.folder import Owner, ShardFolder, holder_text
from rewake.stores import create_log, open_log_writer

WANTED = {"operator": {"by": ["k"]}, "columns": [["k", "int64"]], "shards": 2}


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
    later = sealed({"format": 99})
    for data, error in ((b"not json", DamagedLog), (b"{}", DamagedLog), (later, UsageError)):
        (tmp_path / "operator.json").write_bytes(data)
        with pytest.raises(error):
            ShardFolder(str(tmp_path)).check_operator(WANTED)


def test_what_computes_has_a_checksum(tmp_path: Path) -> None:
    """One shard more or less, and every key would be looked for where it is not."""
    folder = ShardFolder(str(tmp_path / "at"))
    folder.publish_operator(WANTED)
    path = folder.path / "operator.json"
    path.write_text(path.read_text().replace('"shards": 2', '"shards": 3'))
    with pytest.raises(DamagedLog, match=r"operator\.json is damaged \(it fails its checksum\)"):
        folder.check_operator(WANTED | {"shards": 3})


def test_a_folder_has_an_id_of_its_own_that_never_changes(tmp_path: Path) -> None:
    """Drawn when it is said what computes, unless logs have it already."""
    folders = [ShardFolder(str(tmp_path / name)) for name in ("one", "other", "divided")]
    for folder in folders[:2]:
        folder.publish_operator(WANTED)
    folders[2].publish_operator(WANTED, "chosen")
    first, *others = [folder.identity() for folder in folders]
    assert others[1] == "chosen"
    assert len({first, *others}) == 3
    folders[0].publish_operator(WANTED, "another")
    assert folders[0].identity() == first
    with pytest.raises(DamagedLog, match=r"restore operator\.json"):
        ShardFolder(str(tmp_path / "none")).identity()


def test_that_all_shards_were_told_of_a_batch_is_told_to_others(tmp_path: Path) -> None:
    """The newest alone."""
    folder = ShardFolder(str(tmp_path))
    assert folder.told() == ""
    for batch in ("query run 3", "query run 4"):
        folder.tell(batch)
        assert folder.told() == batch
    assert [path.name for path in tmp_path.iterdir()] == ["told"]

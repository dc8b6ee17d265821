"""Small files appear whole, and leave nothing beside them."""

import os
import stat
import threading
from pathlib import Path

import pytest

from rewake.stores.small_files import create_file, replace_file


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_replaced_as_a_whole(tmp_path: Path, durable: bool) -> None:
    """Nobody but its owner may read it."""
    path = tmp_path / "told"
    for data in (b"first", b"second, and longer", b""):
        replace_file(path, data, durable=durable)
        assert path.read_bytes() == data
    assert os.listdir(tmp_path) == ["told"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_first_to_create_a_file_has_it(tmp_path: Path) -> None:
    """Of many at once, too: what is there is whole and one of theirs."""
    path = tmp_path / "token"
    contents = [bytes([65 + number]) * 100_000 for number in range(8)]
    threads = [threading.Thread(target=create_file, args=(path, each)) for each in contents]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    first = path.read_bytes()
    assert first in contents
    create_file(path, b"later")
    assert path.read_bytes() == first
    assert os.listdir(tmp_path) == ["token"]


def test_what_cannot_be_put_in_place_leaves_nothing(tmp_path: Path) -> None:
    """Neither a draft, nor less than was there."""
    (tmp_path / "told").mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_file(tmp_path / "told", b"data")
    assert os.listdir(tmp_path) == ["told"]
    with pytest.raises(FileNotFoundError):
        create_file(tmp_path / "nowhere" / "token", b"data")

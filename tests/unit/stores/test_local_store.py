"""A directory as a store: whole writes, exclusive creation, typed failures, no way out."""

import errno
import os
import time

import pytest

from rewake.log.store import publish
from rewake.model.errors import InvalidName, NotALog, StorageFault, StorageFull
from rewake.stores import LocalStore, local


@pytest.fixture
def store(tmp_path):
    with_folder = LocalStore(tmp_path / "folder", create=True)
    yield with_folder
    with_folder.close()


def test_written_bytes_are_read_back(store):
    """Writes at explicit offsets, of any bytes-like objects, with holes read as zeros."""
    store.create("a", b"0123")
    store.write("a", 6, [b"xy", memoryview(b"z"), bytearray(b"!")])
    assert store.read("a", 0, 100) == b"0123\0\0xyz!"
    assert store.read("a", 6, 2) == b"xy"
    assert store.read("a", 100, 5) == b""
    assert store.size("a") == 10
    store.truncate("a", 2)
    assert store.read("a", 0, 9) == b"01"


def test_creation_is_exclusive(store):
    """The second creator of a name is told so."""
    store.create("a", b"first")
    with pytest.raises(FileExistsError):
        store.create("a", b"second")
    assert store.read("a", 0, 9) == b"first"


def test_more_buffers_than_one_call_takes_are_all_written(store):
    """The kernel takes 1024 buffers at a time; callers need not know."""
    store.create("a", b"")
    store.write("a", 0, [bytes([i % 256]) for i in range(2500)])
    assert store.read("a", 0, 3000) == bytes(i % 256 for i in range(2500))


def test_a_short_write_is_carried_on(store, monkeypatch):
    """A kernel that writes a byte at a time still writes everything."""
    store.create("a", b"")
    monkeypatch.setattr(local.os, "pwritev", lambda fd, bufs, at: os.pwrite(fd, bufs[0][:1], at))
    whole = os.pwrite
    monkeypatch.setattr(local.os, "pwrite", lambda fd, data, at: whole(fd, bytes(data)[:1], at))
    store.write("a", 0, [b"abc", b"def"])
    assert store.read("a", 0, 9) == b"abcdef"


def _is_cached(store, name, offset):
    """Whether a byte can be read without asking the medium; None where nobody can tell."""
    descriptor = os.open(store.path / name, os.O_RDONLY)
    try:
        return bool(os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT))
    except BlockingIOError:
        return False
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _is_let_go(store, name, offset, settled):
    """Whether a byte leaves the cache; others may hold on to a page for a moment."""
    for _ in range(200):
        if not _is_cached(store, name, offset):
            return True
        time.sleep(0.01)
        store.settle(name, settled)
    return False


def test_what_is_settled_is_read_from_the_medium_from_there_on(store):
    """What lies before it was synced long ago, and stays in the cache."""
    size, settled = 8 << 20, 5 << 20
    store.create("a", b"")
    store.write("a", 0, [bytes(size)])
    store.sync("a")
    if not _is_cached(store, "a", 0):
        pytest.skip("this file system does not say what is cached")
    store.settle("a", settled)
    assert _is_cached(store, "a", 0)
    assert _is_cached(store, "a", (4 << 20) - 1)
    assert _is_let_go(store, "a", settled, settled)
    assert _is_let_go(store, "a", size - 1, settled)
    assert _is_cached(store, "a", 0)
    store.settle("a")
    assert _is_let_go(store, "a", 0, 0)


def test_the_cache_keeps_the_newest_of_what_was_synced(store, monkeypatch):
    """Older pages are given back, also of files before; what is unsynced is not."""
    given_back = []

    def advise(fd, start, size, advice):
        assert advice == os.POSIX_FADV_DONTNEED
        given_back.append((os.readlink(f"/proc/self/fd/{fd}").rpartition("/")[2], start, size))

    monkeypatch.setattr(local, "CACHED_BYTES", 250)
    monkeypatch.setattr(local.os, "posix_fadvise", advise)
    for name in ("a", "b"):
        store.create(name, b"")
        for start in (0, 100, 200):
            store.write(name, start, [b"x" * 50, b"y" * 50])
            if start != 100:
                store.sync(name)
    assert given_back == [("a", 0, 100), ("a", 100, 200), ("b", 0, 100)]
    store.delete("b")
    store.create("c", b"z" * 400)
    store.sync("c")
    assert given_back[3:] == [], "what was deleted has no pages"
    assert store.read("a", 0, 999) == (b"x" * 50 + b"y" * 50) * 3


def test_publishing_replaces_a_file_whole_and_leaves_no_draft(store):
    """Also when an earlier attempt left its draft behind."""
    store.create("name.tmp", b"an earlier attempt that was longer")
    publish(store, "name", b"new")
    assert store.read("name", 0, 99) == b"new"
    assert store.names() == ["name"]


@pytest.mark.parametrize("action", ["read", "size", "delete", "write"])
def test_a_missing_file_is_said_to_be_missing(store, action):
    """FileNotFoundError, as the store's contract says."""
    arguments = {"read": (0, 1), "size": (), "delete": (), "write": (0, [b""])}[action]
    with pytest.raises(FileNotFoundError):
        getattr(store, action)("absent", *arguments)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.ENOSPC, StorageFull), (errno.EDQUOT, StorageFull), (errno.EIO, StorageFault)],
)
def test_failures_are_typed_and_say_what_to_do(store, monkeypatch, number, expected):
    """No room is told from a broken disk."""

    def fail(*_):
        raise OSError(number, os.strerror(number))

    store.create("a", b"")
    monkeypatch.setattr(local.os, "pwritev", fail)
    with pytest.raises(expected, match=r"cannot write .*a: .*; "):
        store.write("a", 0, [b"x"])
    with pytest.raises(expected):
        store.create("b", b"x")
    assert "b" not in store.names()


def test_a_failed_sync_is_never_a_mere_lack_of_room(store, monkeypatch):
    """ENOSPC from a sync leaves the fate of the bytes unknown: StorageFault, not StorageFull."""

    def fail(*_):
        raise OSError(errno.ENOSPC, "no space")

    store.create("a", b"")
    monkeypatch.setattr(local.os, "fdatasync", fail)
    with pytest.raises(StorageFault) as caught:
        store.sync("a")
    assert not isinstance(caught.value, StorageFull)


HOSTILE = [
    "", ".", "..", "../a", "a/b", "/etc/passwd", "a\0b", ".hidden", "a\n", "ä", "a" * 201, "a b",
    "..%2f", "..%252f", "a\\b", "~", "$HOME", "*", "a:b", "-\u2028",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_no_name_leaves_the_folder(store, name):
    """Every operation refuses a name outside the small alphabet."""
    for action in (
        lambda: store.create(name, b""),
        lambda: store.read(name, 0, 1),
        lambda: store.write(name, 0, [b""]),
        lambda: store.size(name),
        lambda: store.delete(name),
        lambda: store.rename("a", name),
        lambda: store.rename(name, "a"),
        lambda: store.truncate(name, 0),
        lambda: store.sync(name),
    ):
        with pytest.raises(InvalidName):
            action()


def test_a_place_that_is_no_directory_is_no_log(tmp_path):
    """A missing path and a file are both refused."""
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "absent"):
        with pytest.raises(NotALog):
            LocalStore(path)
    with pytest.raises(NotALog):
        LocalStore(tmp_path / "file", create=True)


def test_the_lock_has_one_holder_and_ends_with_it(tmp_path):
    """A second handle waits its turn, even in the same process."""
    first, second = LocalStore(tmp_path), LocalStore(tmp_path)
    assert first.try_lock()
    assert first.try_lock()
    assert not second.try_lock()
    first.close()
    assert second.try_lock()
    second.close()


def test_no_descriptor_is_left_after_close(tmp_path):
    """However many files were written."""
    before = len(os.listdir("/proc/self/fd"))
    store = LocalStore(tmp_path)
    store.try_lock()
    for number in range(50):
        store.create(f"file-{number}", b"x")
        store.sync(f"file-{number}")
    assert len(os.listdir("/proc/self/fd")) < before + 20
    store.close()
    store.close()
    assert len(os.listdir("/proc/self/fd")) == before

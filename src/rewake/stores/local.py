"""A store in a local directory.

What always holds: `write` has written everything or raised; `sync` is fdatasync, and any failure
of it is a `StorageFault`, never `StorageFull`, because the fate of the bytes is then unknown;
creations, renames and deletions are durable after `sync_directory`.  Names are checked, so no
operation leaves the directory.  Only files being written are kept open; reading opens the file each
time, so that a reader never holds on to a file that was replaced or deleted.

Of what was synced the newest `CACHED_BYTES` stay in the system's cache; older pages are given back.
A log is written once and seldom read, and its pages would crowd out everybody else's.  Besides,
pages that are used again are never dearer: those of a virtual machine come from its host one by one
(docs/figures.md has what that costs).
"""

import errno
import fcntl
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from rewake.log.frame import Buffer
from rewake.model.errors import NotALog, StorageFault, StorageFull
from rewake.model.names import checked_name
from rewake.stores.places import local_path
from rewake.stores.private import FILE_MODE, make_private_folder, put_right
from rewake.stores.small_files import sync_folder

__all__ = ["LocalStore"]

MAX_OPEN_FILES: Final = 16
MAX_BUFFERS: Final = 1024  # IOV_MAX on Linux
LOCK_NAME: Final = "lock"
# Enough for whoever follows closely, and for most recoveries of a process.
CACHED_BYTES: Final = 64 << 20
# The cache drops no page that lies only partly in what it is told to drop.
LARGEST_PAGE: Final = 2 << 20

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_REMEDIES: Final = {
    errno.EROFS: "the file system is read-only: remount it, or open the log elsewhere",
    errno.EACCES: "this user may not write here: change the permissions of the directory",
    errno.EPERM: "this user may not write here: change the permissions of the directory",
    errno.EMFILE: "too many open files: raise the limit (ulimit -n)",
    errno.ENFILE: "too many open files on this machine: close some",
    errno.EIO: "the device fails: check the disk and the kernel's log",
}


class _Reporting(NamedTuple):
    """What the system calls a failure, said so that people know what to do.

    A class and no generator: a writer enters one five times in each of its batches.
    """

    path: Path
    action: str
    name: str
    full: type[StorageFault] = StorageFull

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(
            error, FileNotFoundError | FileExistsError
        ):
            raise self.fault(error) from error

    def fault(self, error: OSError) -> StorageFault:
        """The error for a failure that names the file and what to do."""
        place = self.path / self.name
        if error.errno in _FULL:
            return self.full(
                f"cannot {self.action} {place}: no room ({error.strerror}); free some space"
            )
        remedy = _REMEDIES.get(error.errno or 0, "check the disk, then open the log again")
        return StorageFault(f"cannot {self.action} {place}: {error.strerror}; {remedy}")


class LocalStore:
    """A directory of files, for this user alone unless told otherwise (see `private`)."""

    def __init__(
        self, path: str | os.PathLike[str], *, create: bool = False, private: bool = True
    ) -> None:
        self.path = local_path(path)
        self._file_mode = FILE_MODE if private else 0o666
        if create:
            _make_directory(self.path, private=private)
            if private:
                put_right(self.path)
        try:
            self._directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotALog(f"{self.path} is not a directory; check the path") from error
        except OSError as error:
            raise self._reporting("open", ".").fault(error) from error
        self._guard = threading.Lock()
        self._open_files: OrderedDict[str, int] = OrderedDict()
        self._unsynced: dict[str, tuple[int, int]] = {}  # where each file was written to
        # What is synced and was not given back, oldest first: which file, from where to where.
        self._cached: deque[tuple[str, int, int]] = deque()
        self._cached_bytes = 0
        self._lock: int | None = None
        self._closed = False

    def create(self, name: str, data: bytes) -> None:
        """Create the file exclusively; on failure it is not there."""
        checked_name(name)
        with self._reporting("create", name):
            flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
            descriptor = os.open(name, flags, self._file_mode, dir_fd=self._directory)
            self._keep_open(name, descriptor)
        try:
            self.write(name, 0, (data,))
        except StorageFault:
            with suppress(OSError):
                self.delete(name)
            raise

    def write(self, name: str, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers, however many system calls it takes."""
        with self._reporting("write", name):
            descriptor = self._descriptor(name)
            first = offset
            for start in range(0, len(buffers), MAX_BUFFERS):
                offset = _write_all(descriptor, buffers[start : start + MAX_BUFFERS], offset)
        begin, end = self._unsynced.get(name, (first, offset))
        self._unsynced[name] = min(begin, first), max(end, offset)

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        checked_name(name)
        with self._reporting("read", name):
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._directory)
            try:
                # Never ask for more than there is: `size` may be a generous bound.
                room = os.fstat(descriptor).st_size - offset
                return _read_all(descriptor, offset, min(size, max(0, room)))
            finally:
                os.close(descriptor)

    def size(self, name: str) -> int:
        """The file's length, looked up by name: a deleted file is not there."""
        checked_name(name)
        with self._reporting("stat", name):
            return os.stat(name, dir_fd=self._directory).st_size

    def sync(self, name: str) -> None:
        """Make the file's bytes durable; a failure is never a mere lack of room."""
        with self._reporting("sync", name, full=StorageFault):
            os.fdatasync(self._descriptor(name))
        if name in self._unsynced:
            self._give_back(name, *self._unsynced.pop(name))

    def _give_back(self, name: str, start: int, end: int) -> None:
        """Now that this is synced: what of the cache is not among the newest any more."""
        with self._guard:
            self._cached.append((name, start, end))
            self._cached_bytes += end - start
            oldest = []
            while self._cached_bytes > CACHED_BYTES and len(self._cached) > 1:
                oldest.append(self._cached.popleft())
                self._cached_bytes -= oldest[-1][2] - oldest[-1][1]
        for which, first, last in oldest:
            with suppress(OSError):  # deleted meanwhile, or a cache that takes no advice
                advice = os.POSIX_FADV_DONTNEED
                os.posix_fadvise(self._descriptor(which), first, last - first, advice)

    def settle(self, name: str, offset: int = 0) -> None:
        """Sync, and drop cached pages: after a failed sync they may differ from the medium.

        Through a descriptor that can only read, so that readers may do it, too.
        """
        checked_name(name)
        first = offset - offset % LARGEST_PAGE
        with self._reporting("settle", name, full=StorageFault):
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._directory)
            try:
                os.fdatasync(descriptor)
                os.posix_fadvise(descriptor, first, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)

    def sync_directory(self) -> None:
        """Make creations, renames and deletions durable."""
        with self._reporting("sync", ".", full=StorageFault):
            os.fsync(self._directory)

    def names(self) -> list[str]:
        """All files but the lock."""
        with self._reporting("list", "."):
            return [name for name in os.listdir(self._directory) if name != LOCK_NAME]

    def delete(self, name: str) -> None:
        """Remove the file."""
        checked_name(name)
        self._forget(name)
        with self._reporting("delete", name):
            os.unlink(name, dir_fd=self._directory)

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old`, atomically."""
        checked_name(old)
        checked_name(new)
        self._forget(old)
        self._forget(new)
        with self._reporting("rename", old):
            os.rename(old, new, src_dir_fd=self._directory, dst_dir_fd=self._directory)

    def truncate(self, name: str, size: int) -> None:
        """Set the file's length."""
        with self._reporting("truncate", name):
            os.ftruncate(self._descriptor(name), size)

    def try_lock(self) -> bool:
        """Take the directory's lock; it is given back when the process ends, however it ends."""
        if self._lock is not None:
            return True
        with self._reporting("lock", LOCK_NAME):
            flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
            descriptor = os.open(LOCK_NAME, flags, self._file_mode, dir_fd=self._directory)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            self._lock = descriptor
            return True

    def unlock(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def close(self) -> None:
        """Release every descriptor and the lock."""
        self.unlock()
        with self._guard:
            for descriptor in self._open_files.values():
                os.close(descriptor)
            self._open_files.clear()
        if not self._closed:
            self._closed = True
            os.close(self._directory)

    def _descriptor(self, name: str) -> int:
        """The file opened for writing.  At most a few are in use at once, far below the cap."""
        with self._guard:
            descriptor = self._open_files.get(name)
            if descriptor is not None:
                self._open_files.move_to_end(name)
                return descriptor
        checked_name(name)
        descriptor = os.open(name, os.O_RDWR | os.O_CLOEXEC, dir_fd=self._directory)
        self._keep_open(name, descriptor)
        return descriptor

    def _keep_open(self, name: str, descriptor: int) -> None:
        with self._guard:
            self._open_files[name] = descriptor
            if len(self._open_files) > MAX_OPEN_FILES:
                os.close(self._open_files.popitem(last=False)[1])

    def _forget(self, name: str) -> None:
        with self._guard:
            self._unsynced.pop(name, None)
            descriptor = self._open_files.pop(name, None)
            if descriptor is not None:
                os.close(descriptor)

    def _reporting(
        self, action: str, name: str, full: type[StorageFault] = StorageFull
    ) -> _Reporting:
        return _Reporting(self.path, action, name, full)


def _make_directory(path: Path, *, private: bool) -> None:
    there = path.is_dir()
    try:
        if private:
            make_private_folder(path)
        elif not there:
            path.mkdir(parents=True, exist_ok=True)
        if there:
            return
        sync_folder(path.parent)
    except (FileExistsError, NotADirectoryError) as error:
        raise NotALog(f"{path} cannot be a directory: a file is in its way") from error
    except OSError as error:
        kind = StorageFull if error.errno in _FULL else StorageFault
        remedy = _REMEDIES.get(error.errno or 0, "check the path and the disk")
        raise kind(f"cannot create {path}: {error.strerror}; {remedy}") from error


def _write_all(descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
    """Write the buffers; the offset behind them.  The kernel may stop early at any byte."""
    total = sum(memoryview(buffer).nbytes for buffer in buffers)
    written = os.pwritev(descriptor, buffers, offset)
    while written < total:
        rest = memoryview(b"".join(buffers))[written:]
        count = os.pwrite(descriptor, rest, offset + written)
        if count == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += count
    return offset + total


def _read_all(descriptor: int, offset: int, size: int) -> bytes:
    data = os.pread(descriptor, size, offset)
    if len(data) == size or not data:
        return data
    parts = [data]
    got = len(data)
    while got < size and (data := os.pread(descriptor, size - got, offset + got)):
        parts.append(data)
        got += len(data)
    return b"".join(parts)

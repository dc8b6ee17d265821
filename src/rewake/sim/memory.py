"""A store in memory that knows what power loss may do to it.

A disk keeps, per file, what the last sync made durable and the operations since; and, for the
folder, the same.  `crash(choose)` builds a disk as it may look after power loss.  Every unsynced
operation meets its own fate, so a later one may survive an earlier one (reordering):

    KEPT      it reached the medium
    LOST      it did not
    TORN      a prefix of it did
    SIZED     the file grew, its bytes read as zeros
    GARBLED   it did, but for one sector that holds zeros or noise

Unsynced creations, renames and deletions are each kept or lost.  `choose(n)` picks one of n; pass
`Choices(seed)` for a repeatable stream of picks.  `Faults` counts operations, over several disks if
they share it, and cuts the power at one of them or makes some of them fail.
"""

# ruff: noqa: D102 - the methods of a store are described in `rewake.log.store.Store`.

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Final, TypeAlias

from rewake.log.frame import Buffer
from rewake.model.errors import StorageFault

__all__ = ["Choices", "Choose", "Fate", "Faults", "MemoryStore", "PowerLost"]

Choose: TypeAlias = Callable[[int], int]
SECTOR: Final = 512
READS: Final = frozenset({"read", "size", "names"})


class PowerLost(Exception):
    """The machine is off.  Only `crash` says what is left."""


class Fate(Enum):
    """What power loss does to one unsynced write."""

    KEPT = auto()
    LOST = auto()
    TORN = auto()
    SIZED = auto()
    GARBLED = auto()


_FATES: Final = tuple(Fate)


class Choices:
    """A repeatable stream of picks grown from one seed (splitmix64)."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def __call__(self, options: int) -> int:
        """One of 0 .. options-1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return (mixed ^ (mixed >> 31)) % options


class Faults:
    """What goes wrong, and when.  Operations are counted from 1.

    `crash_at`: the power goes before that mutating operation, and stays off.  `fail_at`: that
    operation (reads count too, when `fail_reads`) raises `error`; with `persistent`, so do all
    later ones that `only` selects.  `short_write`: a failing write first does this share of its
    work.
    """

    def __init__(
        self,
        *,
        crash_at: int = 0,
        fail_at: int = 0,
        error: Exception | None = None,
        persistent: bool = False,
        only: Iterable[str] = (),
        short_write: float = 0.0,
    ) -> None:
        self.crash_at = crash_at
        self.fail_at = fail_at
        self.error = error or StorageFault("injected fault; nothing to do, this is a test")
        self.persistent = persistent
        self.only = frozenset(only)
        self.short_write = short_write
        self.mutations = 0
        self.matched = 0
        self.fired = 0

    def meet(self, kind: str) -> Exception | None:
        """Count one operation; the error it is to raise, if any."""
        if kind not in READS:
            self.mutations += 1
            if self.crash_at and self.mutations >= self.crash_at:
                raise PowerLost(f"power lost at operation {self.crash_at} ({kind})")
        if not self.fail_at or (self.only and kind not in self.only):
            return None
        self.matched += 1
        due = self.matched == self.fail_at or (self.persistent and self.matched > self.fail_at)
        if not due:
            return None
        self.fired += 1
        return self.error


class _File:
    """One file: its bytes now, its bytes at the last sync, and the operations between."""

    __slots__ = ("data", "pending", "synced")

    def __init__(self, data: bytes) -> None:
        self.data = bytearray()
        self.synced = b""
        self.pending: list[tuple[int, bytes | None]] = []
        self.write(0, data)

    def write(self, offset: int, data: bytes) -> None:
        _splice(self.data, offset, data)
        self.pending.append((offset, data))

    def truncate(self, size: int) -> None:
        _resize(self.data, size)
        self.pending.append((size, None))

    def sync(self) -> None:
        if self.pending:
            self.synced = bytes(self.data)
            self.pending.clear()

    def after_power_loss(self, choose: Choose) -> bytes:
        if not self.pending:
            return self.synced
        data = bytearray(self.synced)
        for offset, written in self.pending:
            if written is not None:
                _suffer(data, offset, written, _FATES[choose(len(_FATES))], choose)
            elif choose(2):
                _resize(data, offset)
        return bytes(data)


class _Disk:
    """The files, the folder as the last directory sync left it, and who holds the lock."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.files: dict[str, _File] = {}
        self.entries: dict[str, _File] = {}
        self.pending: list[tuple[str, str, _File | None]] = []
        self.locked_by: object | None = None

    def after_power_loss(self, choose: Choose) -> dict[str, _File]:
        entries = dict(self.entries)
        for old, new, file in self.pending:
            if choose(2):
                entries.pop(old, None)
                if file is not None:
                    entries[new] = file
        return entries


class MemoryStore:
    """One handle on a disk in memory; `attach` gives another, as a second process would have."""

    def __init__(self, faults: Faults | None = None) -> None:
        self._disk = _Disk(faults or Faults())

    # --- the store --------------------------------------------------------------------------

    def create(self, name: str, data: bytes) -> None:
        self._meet("create")
        if name in self._disk.files:
            raise FileExistsError(name)
        file = self._disk.files[name] = _File(data)
        self._disk.pending.append((name, name, file))

    def write(self, name: str, offset: int, buffers: Sequence[Buffer]) -> None:
        data = b"".join(buffers)
        error = self._disk.faults.meet("write")
        if error is not None:
            share = int(len(data) * self._disk.faults.short_write)
            if share:
                self._file(name).write(offset, data[:share])
            raise error
        self._file(name).write(offset, data)

    def read(self, name: str, offset: int, size: int) -> bytes:
        self._meet("read")
        return bytes(self._file(name).data[offset : offset + size])

    def size(self, name: str) -> int:
        self._meet("size")
        return len(self._file(name).data)

    def sync(self, name: str) -> None:
        self._meet("sync")
        self._file(name).sync()

    def settle(self, name: str, offset: int = 0) -> None:  # noqa: ARG002
        self.sync(name)

    def sync_directory(self) -> None:
        self._meet("sync_directory")
        self._disk.entries = dict(self._disk.files)
        self._disk.pending.clear()

    def names(self) -> list[str]:
        self._meet("names")
        return list(self._disk.files)

    def delete(self, name: str) -> None:
        self._meet("delete")
        self._file(name)
        del self._disk.files[name]
        self._disk.pending.append((name, "", None))

    def rename(self, old: str, new: str) -> None:
        self._meet("rename")
        file = self._file(old)
        del self._disk.files[old]
        self._disk.files[new] = file
        self._disk.pending.append((old, new, file))

    def truncate(self, name: str, size: int) -> None:
        self._meet("truncate")
        self._file(name).truncate(size)

    def try_lock(self) -> bool:
        if self._disk.locked_by not in (None, self):
            return False
        self._disk.locked_by = self
        return True

    def unlock(self) -> None:
        if self._disk.locked_by is self:
            self._disk.locked_by = None

    def close(self) -> None:
        self.unlock()

    # --- the model --------------------------------------------------------------------------

    @property
    def faults(self) -> Faults:
        """What goes wrong on this disk; replace it to change that."""
        return self._disk.faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._disk.faults = faults

    def attach(self) -> "MemoryStore":
        """Another handle on the same disk, with its own claim on the lock."""
        other = MemoryStore.__new__(MemoryStore)
        other._disk = self._disk
        return other

    def crash(self, choose: Choose) -> "MemoryStore":
        """A disk as it may look after power loss; this one is left as it is."""
        return MemoryStore.holding(
            (name, file.after_power_loss(choose))
            for name, file in self._disk.after_power_loss(choose).items()
        )

    def killed(self) -> "MemoryStore":
        """A copy of the disk as the next process finds it when this one is killed."""
        return MemoryStore.holding(
            (name, bytes(file.data)) for name, file in self._disk.files.items()
        )

    @staticmethod
    def holding(contents: Mapping[str, bytes] | Iterable[tuple[str, bytes]]) -> "MemoryStore":
        """A disk on which these files are there and durable."""
        store = MemoryStore()
        for name, data in dict(contents).items():
            file = store._disk.files[name] = _File.__new__(_File)
            file.data, file.synced, file.pending = bytearray(data), data, []
        store._disk.entries = dict(store._disk.files)
        return store

    def _meet(self, kind: str) -> None:
        error = self._disk.faults.meet(kind)
        if error is not None:
            raise error

    def _file(self, name: str) -> _File:
        try:
            return self._disk.files[name]
        except KeyError:
            raise FileNotFoundError(name) from None


def _splice(data: bytearray, offset: int, written: bytes) -> None:
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(written)] = written


def _resize(data: bytearray, size: int) -> None:
    if len(data) > size:
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def _suffer(data: bytearray, offset: int, written: bytes, fate: Fate, choose: Choose) -> None:
    """Apply one write to `data` as its fate has it."""
    if fate is Fate.KEPT:
        _splice(data, offset, written)
    elif fate is Fate.TORN:
        _splice(data, offset, written[: choose(len(written) + 1)])
    elif fate is Fate.SIZED:
        _resize(data, max(len(data), offset + len(written)))
    elif fate is Fate.GARBLED:
        _splice(data, offset, _garbled(written, choose))


def _garbled(written: bytes, choose: Choose) -> bytes:
    start = choose(len(written) // SECTOR + 1) * SECTOR
    sector = bytearray(written[start : start + SECTOR])
    noise = choose(2)
    sector[:] = bytes(choose(256) if noise else 0 for _ in sector)
    return written[:start] + bytes(sector) + written[start + SECTOR :]

"""Files as a source: Parquet, CSV or JSON lines, in the order of their names.

The list of files is fixed when the value is made: names, sizes and a digest of the two ends of each
file are part of it.  It travels with the query, so every attempt of every node reads the same
files; one that has changed since is refused, because what was computed from it could not be
repeated.  (A change that keeps the size and both ends of a file is not noticed.)

Shard k of n has the files k, k + n, k + 2n, ... of the list, one after another; its rows have the
positions 0, 1, 2, ...  Going to a position skips whole files and row groups of Parquet; CSV and
JSON are scanned, but files that this reader has been through are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from glob import glob, has_magic
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from rewake.connectors.cutting import (
    EVENT_TUPLES,
    CutReader,
    bare_schema,
    beyond_the_end,
    check_cut,
    check_shard,
    check_time_column,
    schema_json,
    slack_of,
)
from rewake.connectors.files.formats import FORMATS, FileFormat, checked_format
from rewake.model.errors import ReplayMismatch, SchemaMismatch, StorageFault, UsageError
from rewake.stores.places import local_path

__all__ = ["FileEntry", "Files"]

_END_BYTES: Final = 64 << 10
_PARQUET_BEGINS: Final = b"PAR1"
_COMPRESSIONS: Final = ("", ".gz", ".bz2", ".zst")


class FileEntry(NamedTuple):
    """One file as it was when the source was made; the name is relative to the source's root."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Files:
    """The rows of the files at `path`: a file, a folder or a glob pattern.

    `schema` is that of the first file that has rows, unless given.  With `time_column`, in whose
    order the rows of a shard must be, each stream event carries its last time as watermark; with
    `slack` rows may be out of order, and watermarks are that much behind.
    """

    path: str | os.PathLike[str]
    format: str = "parquet"
    event_tuples: int = EVENT_TUPLES
    schema: pa.Schema | None = None
    time_column: str | None = None
    slack: str | int | None = None
    root: str = field(init=False)
    entries: tuple[FileEntry, ...] = field(init=False)

    def __post_init__(self) -> None:
        check_cut(self.event_tuples)
        file_format = checked_format(self.format)
        root, names = _found(os.path.abspath(local_path(self.path)), file_format)
        _check_parquet(root / names[0], self.format)
        schema = self.schema or _first_schema([root / name for name in names], file_format)
        schema = bare_schema(schema)
        check_time_column(self.time_column, schema)
        slack_of(self.time_column, self.slack, schema)
        object.__setattr__(self, "path", os.fspath(self.path))
        object.__setattr__(self, "root", str(root))
        object.__setattr__(self, "entries", tuple(_entry(root, name) for name in names))
        object.__setattr__(self, "schema", schema)

    @property
    def watermarks(self) -> bool:
        """Whether stream events carry watermarks."""
        return self.time_column is not None

    def describe(self) -> dict[str, Any]:
        """All that decides which tuples come: where the files are does not, what they hold does."""
        return {
            "kind": "files",
            "format": self.format,
            "files": [entry._asdict() for entry in self.entries],
            "schema": schema_json(self.schema),
            "event_tuples": self.event_tuples,
            "time_column": self.time_column,
            **({} if self.slack is None else {"slack": self.slack}),
        }

    def open(self, shard: int, shards: int) -> CutReader:
        """Open one of `shards` disjoint parts."""
        check_shard(shard, shards)
        rows = _ShardRows(self, self.entries[shard::shards])
        return CutReader(
            rows.rows_from, self.schema, self.event_tuples, self.time_column, self.slack
        )


class _ShardRows:
    """The rows of a shard's files, one file after another."""

    def __init__(self, source: Files, entries: tuple[FileEntry, ...]) -> None:
        self._root = Path(source.root)
        self._entries = entries
        self._format = checked_format(source.format)
        self._schema = source.schema
        # In whose order the rows must be.
        self._time_column = source.time_column if source.slack is None else None
        # How many rows a file has, once that is known.
        self._counts: dict[str, int] = {}

    def rows_from(self, position: int) -> Iterator[pa.RecordBatch]:
        """The rows from a position on; raises OutOfRange when there are fewer."""
        skip = position
        latest: int | None = None
        for entry in self._entries:
            _check_unchanged(self._root, entry)
            count = self._count(entry)
            if count is None or count > skip:
                count = 0
                for first, batch in self._batches(entry, skip):
                    latest = self._check_order(entry, first, batch, latest)
                    count = first + batch.num_rows
                    yield batch.slice(min(max(skip - first, 0), batch.num_rows))
                self._counts[entry.name] = count
            skip = max(skip - count, 0)
        if skip:
            raise beyond_the_end(position, position - skip)

    def _batches(self, entry: FileEntry, row: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        try:
            yield from self._format.batches(self._root / entry.name, self._schema, row)
        except FileNotFoundError as error:
            raise _gone(self._root / entry.name) from error

    def _count(self, entry: FileEntry) -> int | None:
        if entry.name not in self._counts:
            count = self._format.rows(self._root / entry.name)
            if count is None:
                return None
            self._counts[entry.name] = count
        return self._counts[entry.name]

    def _check_order(
        self, entry: FileEntry, first: int, batch: pa.RecordBatch, latest: int | None
    ) -> int | None:
        """Refuse times that go back; the latest one."""
        if self._time_column is None:
            return None
        column = batch.column(self._time_column).cast(pa.int64())
        times = column.drop_null().to_numpy()
        if not times.size:
            return latest
        back = np.flatnonzero(times[1:] < times[:-1]) + 1
        if (latest is not None and times[0] < latest) or back.size:
            place = 0 if not back.size or (latest is not None and times[0] < latest) else back[0]
            row = first + np.flatnonzero(column.is_valid())[place]
            raise UsageError(
                f"{self._root / entry.name}, row {row + 1}: its {self._time_column!r} is before "
                "that of the row before it; sort the rows, say by how much they may be "
                "out of order (slack), or leave time_column out"
            )
        return int(times[-1])


# --- which files ---------------------------------------------------------------------------------


def _found(path: str, file_format: FileFormat) -> tuple[Path, list[str]]:
    """The folder that all names are relative to, and the names in order."""
    if os.path.isdir(path):
        root, names = Path(path), [each for each in os.listdir(path) if _fits(each, file_format)]
    elif has_magic(path):
        root = Path(path)
        while has_magic(str(root)):
            root = root.parent
        names = [os.path.relpath(each, root) for each in glob(path, recursive=True)]
    else:
        root, names = Path(path).parent, [Path(path).name]
    names = sorted(each for each in names if (root / each).is_file() and not _hidden(each))
    if not names:
        raise UsageError(
            f"there are no files at {path}; give a file, a folder with "
            f"{' or '.join(file_format.endings)} files, or a glob pattern{_others(path)}"
        )
    return root, names


def _others(path: str) -> str:
    """What else a folder has: whoever did not say a format may have meant that."""
    for each in sorted(os.listdir(path)) if os.path.isdir(path) else ():
        named = _named_format(each)
        if named is not None and not _hidden(each):
            return f"; there are {FORMATS[named].endings[0]} files: {_give(named)}"
    return ""


def _named_format(name: str) -> str | None:
    """The format that a file's name suggests."""
    return next((each for each, known in FORMATS.items() if _fits(name, known)), None)


def _give(file_format: str) -> str:
    return f'give format="{file_format}"'


def _check_parquet(path: Path, file_format: str) -> None:
    """Parquet is what files are taken for when nobody says what they are: then say so.

    A file that is called Parquet and is none is damaged, which is another matter.
    """
    named = _named_format(path.name)
    if file_format != "parquet" or named == "parquet":
        return
    try:
        with open(path, "rb") as file:
            begins = file.read(len(_PARQUET_BEGINS))
    except OSError:
        return  # told when it is read
    if begins != _PARQUET_BEGINS:
        known = f"say which it is with format=, one of {', '.join(FORMATS)}"
        raise UsageError(
            f"{path} is no Parquet file, which files are taken for unless a format is given; "
            f"{known if named is None else _give(named)}"
        )


def _fits(name: str, file_format: FileFormat) -> bool:
    return name.endswith(
        tuple(ending + each for ending in file_format.endings for each in _COMPRESSIONS)
    )


def _hidden(name: str) -> bool:
    """By convention, what begins with a dot or an underscore is not data."""
    return os.path.basename(name).startswith((".", "_"))


def _first_schema(paths: list[Path], file_format: FileFormat) -> pa.Schema:
    for path in paths:
        schema = file_format.schema(path)
        if schema is not None:
            return schema
    raise SchemaMismatch(
        f"none of the {len(paths)} files shows its columns ({paths[0]} is the first): they have no "
        "rows; give schema="
    )


def _entry(root: Path, name: str) -> FileEntry:
    try:
        with open(root / name, "rb") as file:
            digest = sha256(file.read(_END_BYTES))
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _END_BYTES, 0))
            digest.update(file.read(_END_BYTES))
    except FileNotFoundError as error:
        raise _gone(root / name) from error
    except OSError as error:
        raise StorageFault(
            f"cannot read {root / name}: {error.strerror}; check the file and its permissions"
        ) from error
    return FileEntry(name, size, digest.hexdigest())


def _check_unchanged(root: Path, entry: FileEntry) -> None:
    found = _entry(root, entry.name)
    if found == entry:
        return
    what = "has other content"
    if found.size != entry.size:
        what = f"has {found.size} bytes, not {entry.size}"
    raise ReplayMismatch(
        f"{root / entry.name} {what}: it has changed since the query began, so what was read from "
        "it cannot be read again; restore the file, or start a new query in a new folder"
    )


def _gone(path: Path) -> ReplayMismatch:
    return ReplayMismatch(
        f"{path} is gone: it was there when the query began; restore the file, or start a new "
        "query in a new folder"
    )

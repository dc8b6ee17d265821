"""Files as the end of a stream: Parquet, CSV or JSON lines, exactly once.

A file's name says which positions of which channel it holds, so the folder itself records what has
been committed: a successor lists it and goes on from there.  `parts` describes the folder and reads
it back, `part_folder` how a file appears whole and why only the latest writer's does.

A commit, case by case: killed before the move, there are drafts, which the successor removes, and
the position is the old one.  Killed after it, the file is there and the position is the new one.
Without room, `StorageFull`: what was written is kept in memory, and commit can be called again.
A failed sync leaves the writer unusable: its successor reads what is really there.

From which logs the tuples are stands beside them (`parts.ORIGINS`), so that nobody else's folder
goes on here.  It changes when an upstream begins, not with every commit, and is durable before the
first tuple of it.

The host must write each channel's stream events in order, from `position(channel)` or before; what
is committed already is left out.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as arrow_parquet

from rewake.connectors.cutting import check_shard, schema_json
from rewake.connectors.files.json_lines import check_text_schema, json_lines
from rewake.connectors.files.part_folder import PartFolder
from rewake.connectors.files.parts import (
    MARKER,
    ORIGINS,
    PartStretch,
    chains,
    look_at,
    marker_content,
    read_marker,
    read_origins,
)
from rewake.log.files.sealed import sealed
from rewake.model.connectors import SinkLook
from rewake.model.errors import (
    SchemaMismatch,
    StorageFault,
    StorageFull,
    UsageError,
    WriterFailed,
)
from rewake.model.stream_event import StreamEvent
from rewake.stores import LocalStore
from rewake.stores.places import local_path

__all__ = ["FileSink", "FileSinkWriter"]

FORMATS: Final = ("parquet", "csv", "json")
_MARKER_DRAFT: Final = "_rewake-"


@dataclass(frozen=True, slots=True)
class FileSink:
    """Files in `folder`, one for each channel and commit that has tuples.

    The first to open one stores the format, the shards and the columns in the folder; no sink with
    others may write there.
    """

    folder: str | os.PathLike[str]
    format: str = "parquet"

    def __post_init__(self) -> None:
        # A node may have another current folder.
        object.__setattr__(self, "folder", os.path.abspath(local_path(self.folder)))
        if self.format not in FORMATS:
            raise UsageError(f"no file format {self.format!r}; choose one of {', '.join(FORMATS)}")

    def describe(self) -> dict[str, Any]:
        """Where the tuples go, and as what."""
        return {**self.identity(), "folder": self.where}

    def identity(self) -> dict[str, Any]:
        """As what the tuples go, wherever."""
        return {"kind": "files", "format": self.format}

    @property
    def where(self) -> str:
        """The folder."""
        return str(self.folder)

    def look(self, shard: int, shards: int) -> SinkLook:
        """What one shard has committed, and from which logs; nothing is changed."""
        check_shard(shard, shards)
        return look_at(self._path(shard, shards))

    def open(self, shard: int, shards: int, schema: pa.Schema) -> FileSinkWriter:
        """Open one shard's end: from now on, earlier writers of it are fenced."""
        check_shard(shard, shards)
        if self.format != "parquet":
            check_text_schema(schema, self.format)
        root = Path(self.folder)
        _claim(root, marker_content(self.format, shards, schema))
        folder = PartFolder(self._path(shard, shards))
        return FileSinkWriter(folder, schema, self.format)

    def _path(self, shard: int, shards: int) -> Path:
        root = Path(self.folder)
        return root if shards == 1 else root / f"shard-{shard}"


@dataclass(slots=True)
class _Channel:
    """What is committed, what has been taken, and what of it waits for a commit."""

    # The stretch without tuples that the channel ends with, if it does: the next may prolong it.
    bare: PartStretch | None = None
    committed: int = 0
    taken: int = 0
    waiting: list[pa.RecordBatch] = field(default_factory=list)


class FileSinkWriter:
    """One shard's end of a file sink.

    Invariant: per channel, committed files reach to `position`; sealed and waiting tuples follow.
    """

    def __init__(self, folder: PartFolder, schema: pa.Schema, file_format: str) -> None:
        self._folder = folder
        self._schema = schema
        self._format = file_format
        self._failure: Exception | None = None
        # A commit under way.  It is repeated as it is after a failure, because some of its files
        # may be there already.
        self._sealed: list[tuple[PartStretch, pa.Table]] = []
        try:
            self._channels = self._found()
            self._origins: Mapping[str, Any] | None = read_origins(folder.path)
            self._binding: Mapping[str, Any] | None = self._origins
        except BaseException:
            folder.close()
            raise

    def _found(self) -> dict[int, _Channel]:
        chained, replaced = chains(self._folder.names(), str(self._folder.path))
        # Its predecessor may have died before it made them durable.
        self._folder.settle()
        for each in replaced:
            self._folder.discard(each.name(self._format))
        return {
            channel: _Channel(
                None if chain[-1].has_tuples else chain[-1], chain[-1].end, chain[-1].end
            )
            for channel, chain in chained.items()
        }

    def position(self, channel: int) -> int:
        """Input of this channel up to here (exclusive) is committed."""
        return self._channels[channel].committed if channel in self._channels else 0

    @property
    def origins(self) -> Mapping[str, Any] | None:
        """From which logs what is committed here is; None when nothing says so."""
        return self._origins

    def bind(self, origins: Mapping[str, Any]) -> None:
        """Say with the next commit, before its tuples, from which logs they are."""
        self._binding = origins

    def write(self, channel: int, event: StreamEvent) -> None:
        """Take a stream event; it counts when a later `commit` returns."""
        self._check_usable()
        each = self._channels.setdefault(channel, _Channel())
        fresh = event.since(each.taken)
        if fresh is None:
            return
        assert fresh.start == each.taken, (
            f"channel {channel} goes on at {each.taken}, not at {fresh.start}"
        )
        if fresh.batch.num_rows:
            each.waiting.append(self._fitting(fresh.batch))
        each.taken = fresh.end

    def commit(self) -> None:
        """Make all that was written durable and visible, at once or not at all per channel."""
        self._check_usable()
        try:
            while self._sealed or self._seal():
                self._publish()
        except StorageFull:
            raise
        except Exception as error:
            self._failure = error
            raise

    def close(self) -> None:
        """Release the folder; what was not committed is forgotten."""
        self._folder.close()

    # --- one commit --------------------------------------------------------------------------

    def _seal(self) -> bool:
        """Decide what the next commit holds; False when there is nothing."""
        for channel, each in self._channels.items():
            if each.taken > each.committed:
                start = each.committed
                if not each.waiting and each.bare is not None:
                    start = each.bare.start
                stretch = PartStretch(channel, start, each.taken, bool(each.waiting))
                self._sealed.append((stretch, pa.Table.from_batches(each.waiting, self._schema)))
                each.waiting = []
        return bool(self._sealed)

    def _publish(self) -> None:
        self._publish_origins()
        for stretch, table in self._sealed:
            data = self._encoded(table) if stretch.has_tuples else b""
            self._folder.draft(stretch.name(self._format), data)
        for stretch, _ in self._sealed:
            self._folder.publish(stretch.name(self._format))
        self._folder.settle()
        sealed, self._sealed = self._sealed, []
        for stretch, _ in sealed:
            each = self._channels[stretch.channel]
            replaced, each.bare = each.bare, None if stretch.has_tuples else stretch
            each.committed = stretch.end
            if replaced is not None and replaced.start == stretch.start:
                self._folder.discard(replaced.name(self._format))

    def _publish_origins(self) -> None:
        """Settled by itself: tuples must not be there before it, also after power loss."""
        binding = self._binding
        if binding is not None and binding != self._origins:
            self._folder.draft(ORIGINS, sealed(dict(binding)))
            self._folder.publish(ORIGINS)
            self._folder.settle()
            self._origins = binding

    def _encoded(self, table: pa.Table) -> bytes:
        if self._format == "json":
            return json_lines(table)
        output = pa.BufferOutputStream()
        if self._format == "parquet":
            arrow_parquet.write_table(table, output)
        else:
            arrow_csv.write_csv(table, output)
        return bytes(output.getvalue())

    def _fitting(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not batch.schema.equals(self._schema):
            raise SchemaMismatch(
                f"the sink in {self._folder.path} takes {schema_json(self._schema)}, not "
                f"{schema_json(batch.schema)}; open it with the columns of its stream"
            )
        return batch

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise WriterFailed(
                f"the sink in {self._folder.path} has stopped: {self._failure}; open it again to "
                "go on from what is committed"
            ) from self._failure


# --- whose folder it is --------------------------------------------------------------------------


def _claim(root: Path, content: dict[str, Any]) -> None:
    """Write the marker into an empty folder, or find one that says the same."""
    store = LocalStore(root, create=True, private=False)
    try:
        names = store.names()
        if MARKER not in names:
            _check_empty(root, names)
            _write_marker(store, content)
        for name in names:
            if name.startswith(_MARKER_DRAFT):
                with suppress(FileNotFoundError):
                    store.delete(name)
    finally:
        store.close()
    found = read_marker(root)
    for what in ("format", "shards", "columns"):
        if found.get(what) != content[what]:
            raise UsageError(
                f"{root} belongs to another sink: its {what} is {found.get(what)!r}, not "
                f"{content[what]!r}; write to another folder"
            )


def _check_empty(root: Path, names: list[str]) -> None:
    others = sorted(name for name in names if not name.startswith(_MARKER_DRAFT))
    if others:
        raise UsageError(
            f"{root} holds {len(others)} files that no sink has written, such as {others[0]!r}; "
            "write to a new or empty folder"
        )


def _write_marker(store: LocalStore, content: dict[str, Any]) -> None:
    """Several shards may do this at once, with the same content: each has its own draft."""
    draft = f"{_MARKER_DRAFT}{secrets.token_hex(8)}.tmp"
    try:
        store.create(draft, json.dumps(content, indent=1).encode())
        store.sync(draft)
        store.rename(draft, MARKER)
        store.sync_directory()
    except FileNotFoundError as error:
        if MARKER not in store.names():
            raise StorageFault(
                f"{draft} disappeared from {store.path} before it could be published; open the "
                "sink again"
            ) from error

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
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as arrow_parquet

from rewake.connectors.channels import ChannelWriter
from rewake.connectors.cutting import check_shard
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
    StorageFault,
    UsageError,
)
from rewake.stores import LocalStore
from rewake.stores.places import local_path
from rewake.stores.small_files import replace_file

__all__ = ["FileSink", "FileSinkWriter"]

FORMATS: Final = ("parquet", "csv", "json")
# What a shard that died left of the marker, or another one is at.
_MARKER_DRAFT: Final = f".{MARKER}."


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

    @property
    def recorded_at(self) -> str:
        """The folder, by whatever name."""
        return f"folder {os.path.realpath(self.folder)}"

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


class FileSinkWriter(ChannelWriter):
    """One shard's end of a file sink."""

    def __init__(self, folder: PartFolder, schema: pa.Schema, file_format: str) -> None:
        super().__init__(f"the sink in {folder.path}", schema)
        self._folder = folder
        self._format = file_format
        self._waiting: dict[int, list[pa.RecordBatch]] = {}
        # The stretch without tuples that a channel ends with, if it does: the next may prolong it.
        self._bare: dict[int, PartStretch] = {}
        # A commit under way.  It is repeated as it is after a failure, because some of its files
        # may be there already.
        self._sealed: list[tuple[PartStretch, pa.Table]] = []
        try:
            self._found(SinkLook(self._find(), read_origins(folder.path)))
        except BaseException:
            folder.close()
            raise

    def _find(self) -> dict[int, int]:
        """How far each channel is committed."""
        chained, replaced = chains(self._folder.names(), str(self._folder.path))
        # Its predecessor may have died before it made them durable.
        self._folder.settle()
        for each in replaced:
            self._folder.discard(each.name(self._format))
        last = {channel: chain[-1] for channel, chain in chained.items()}
        self._bare.update((channel, each) for channel, each in last.items() if not each.has_tuples)
        return {channel: each.end for channel, each in last.items()}

    def commit(self) -> None:
        """Make all that was written durable and visible, at once or not at all per channel."""
        self._commit(self._publish)

    def close(self) -> None:
        """Release the folder; what was not committed is forgotten."""
        self._folder.close()

    # --- one commit --------------------------------------------------------------------------

    def _hold(self, channel: int, batch: pa.RecordBatch) -> None:
        self._waiting.setdefault(channel, []).append(batch)

    def _seal(self) -> bool:
        if self._sealed:
            return True
        for channel, reach in self._channels.items():
            if reach.taken > reach.committed:
                waiting = self._waiting.pop(channel, [])
                start = reach.committed
                if not waiting and channel in self._bare:
                    start = self._bare[channel].start
                stretch = PartStretch(channel, start, reach.taken, bool(waiting))
                self._sealed.append((stretch, pa.Table.from_batches(waiting, self._schema)))
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
            replaced = self._bare.pop(stretch.channel, None)
            if not stretch.has_tuples:
                self._bare[stretch.channel] = stretch
            self._channels[stretch.channel].committed = stretch.end
            if replaced is not None and replaced.start == stretch.start:
                self._folder.discard(replaced.name(self._format))

    def _publish_origins(self) -> None:
        """Settled by itself: tuples must not be there before it, also after power loss."""
        news = self._news
        if news is not None:
            self._folder.draft(ORIGINS, sealed(dict(news)))
            self._folder.publish(ORIGINS)
            self._folder.settle()
            self._origins = news

    def _encoded(self, table: pa.Table) -> bytes:
        if self._format == "json":
            return json_lines(table)
        output = pa.BufferOutputStream()
        if self._format == "parquet":
            arrow_parquet.write_table(table, output)
        else:
            arrow_csv.write_csv(table, output)
        return bytes(output.getvalue())


# --- whose folder it is --------------------------------------------------------------------------


def _claim(root: Path, content: dict[str, Any]) -> None:
    """Write the marker into an empty folder, or find one that says the same."""
    store = LocalStore(root, create=True, private=False)
    try:
        names = store.names()
        if MARKER not in names:
            _check_empty(root, names)
            try:  # several shards may do this at once, with the same content
                replace_file(root / MARKER, json.dumps(content, indent=1).encode(), private=False)
            except OSError as error:
                raise StorageFault(f"cannot write {root / MARKER}: {error.strerror}") from error
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

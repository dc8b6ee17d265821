"""The folder of a file sink: what its files are called, and how far they reach.

    _rewake.json                             whose folder it is, and which columns the files have
    _origins.json                            from which logs the tuples are, by channel; sealed
    part-<channel>-<start>-<end>.<format>    the tuples of a channel at positions start to end - 1
    _covered-<channel>-<start>-<end>         a stretch of a channel that has no tuples
    .drafts-<token>/                         what its writer is at; see `part_folder`
    shard-<k>/                               the same again for each shard, when there are several

Channels have 5 digits and positions 20, so that names sort as numbers do.  Readers that know the
convention skip names that begin with a dot or an underscore.

What always holds: the stretches of a channel begin at 0 and follow each other without gap or
overlap; a file is there whole or not at all.  A longer `_covered` file may stand beside a shorter
one with the same start, which it replaces.  `_origins.json` tells at least who wrote what is there;
a folder from before there was one has none until the next commit.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from rewake.connectors.cutting import bare_schema, schema_json
from rewake.connectors.files.formats import checked_format
from rewake.log.files.sealed import unsealed
from rewake.model.connectors import SinkLook
from rewake.model.errors import DamagedData, UsageError
from rewake.stores.places import local_path

__all__ = [
    "MARKER",
    "ORIGINS",
    "PartStretch",
    "chains",
    "look_at",
    "marker_content",
    "read_origins",
    "read_parts",
    "stretch_of",
]

MARKER: Final = "_rewake.json"
ORIGINS: Final = "_origins.json"
VERSION: Final = 1
_ATTEMPTS: Final = 5
_PART: Final = re.compile(r"part-(\d{5,})-(\d{20})-(\d{20})\.[a-z]+\Z")
_COVERED: Final = re.compile(r"_covered-(\d{5,})-(\d{20})-(\d{20})\Z")


class PartStretch(NamedTuple):
    """A stretch of a channel that is committed, and the file that says so."""

    channel: int
    start: int
    end: int
    has_tuples: bool

    def name(self, file_format: str) -> str:
        """The name of its file."""
        numbers = f"{self.channel:05d}-{self.start:020d}-{self.end:020d}"
        return f"part-{numbers}.{file_format}" if self.has_tuples else f"_covered-{numbers}"


def stretch_of(name: str) -> PartStretch | None:
    """The stretch that a file name stands for, or None when it is another file's."""
    found = _PART.match(name) or _COVERED.match(name)
    if found is None:
        return None
    return PartStretch(int(found[1]), int(found[2]), int(found[3]), name.startswith("part-"))


def chains(
    names: Iterable[str], folder: str
) -> tuple[dict[int, list[PartStretch]], list[PartStretch]]:
    """The stretches of each channel in order, and those that longer ones have replaced.

    Raises DamagedData when something is missing or there twice.
    """
    found = sorted(
        (each for name in names if (each := stretch_of(name)) is not None),
        key=lambda each: (each.channel, each.start, -each.end),
    )
    chained: dict[int, list[PartStretch]] = {}
    replaced = []
    for each in found:
        chain = chained.setdefault(each.channel, [])
        last = chain[-1] if chain else PartStretch(each.channel, 0, 0, False)
        if not each.has_tuples and not last.has_tuples and each.start == last.start < last.end:
            replaced.append(each)
            continue
        if each.start != last.end or each.end <= each.start:
            raise _broken(folder, last, each)
        chain.append(each)
    return chained, replaced


def _broken(folder: str, last: PartStretch, each: PartStretch) -> DamagedData:
    channel = f"channel {each.channel} in {folder}"
    if each.start > last.end:
        return DamagedData(
            f"{channel}: the tuples at positions {last.end} to {each.start - 1} are missing before "
            f"the file that begins at {each.start}; restore the files that held them, or write to "
            "a new folder"
        )
    return DamagedData(
        f"{channel}: the files from {last.start} to {last.end} and from {each.start} to {each.end} "
        "overlap; remove the one that does not belong there, or write to a new folder"
    )


# --- the marker ----------------------------------------------------------------------------------


def marker_content(file_format: str, shards: int, schema: pa.Schema) -> dict[str, Any]:
    """What the marker of a sink's folder says."""
    return {
        "version": VERSION,
        "format": file_format,
        "shards": shards,
        "columns": schema_json(schema),
        "arrow_schema": base64.b64encode(bare_schema(schema).serialize()).decode(),
    }


def read_marker(folder: Path) -> dict[str, Any]:
    """The marker of a folder; UsageError when it has none."""
    try:
        marker = json.loads((folder / MARKER).read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(
            f"{folder} is not the folder of a file sink: it has no {MARKER}; check the path"
        ) from error
    except ValueError as error:
        raise DamagedData(f"{folder / MARKER} is no JSON: {error}; restore the file") from error
    if not isinstance(marker, dict) or marker.get("version") != VERSION:
        raise DamagedData(f"{folder / MARKER} is not of version {VERSION}; restore the file")
    return marker


# --- whose tuples these are ----------------------------------------------------------------------


def read_origins(folder: Path) -> dict[str, Any] | None:
    """From which logs the tuples in a folder of parts are; None when nothing says so."""
    try:
        data = (folder / ORIGINS).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return unsealed(data, str(folder / ORIGINS), "restore the sink from a copy")


def look_at(folder: Path) -> SinkLook:
    """How far the parts in a folder reach, and where they are from; nothing is changed."""
    if not folder.is_dir():
        return SinkLook({}, None)
    # In this order: a writer may be at work, and says where its tuples are from before they come.
    reached = {channel: chain[-1].end for channel, chain in _listed(folder).items()}
    return SinkLook(reached, read_origins(folder))


# --- reading back --------------------------------------------------------------------------------


def read_parts(folder: str | os.PathLike[str]) -> pa.Table:
    """All tuples that a file sink has committed: by shard, by channel, in the order of positions.

    Raises DamagedData when something is missing or there twice.
    """
    root = local_path(folder)
    marker = read_marker(root)
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(marker["arrow_schema"])))
    shards = int(marker["shards"])
    folders = [root] if shards == 1 else [root / f"shard-{shard}" for shard in range(shards)]
    tables = [
        _read_part(path, marker["format"], schema)
        for each in folders
        for path in _part_paths(each, marker["format"])
    ]
    return pa.concat_tables([schema.empty_table(), *tables])


def _part_paths(folder: Path, file_format: str) -> Iterator[Path]:
    if not folder.is_dir():
        return  # a shard that has not started
    for chain in _listed(folder).values():
        for each in chain:
            if each.has_tuples:
                yield folder / each.name(file_format)


def _listed(folder: Path) -> dict[int, list[PartStretch]]:
    for _ in range(_ATTEMPTS - 1):
        try:
            return chains(os.listdir(folder), str(folder))[0]
        except DamagedData:
            continue  # while a sink writes, a listing may show a later file and miss an earlier one
    return chains(os.listdir(folder), str(folder))[0]


def _read_part(path: Path, file_format: str, schema: pa.Schema) -> pa.Table:
    batches = checked_format(file_format).batches(path, schema, 0)
    return pa.Table.from_batches([batch for _, batch in batches], schema)

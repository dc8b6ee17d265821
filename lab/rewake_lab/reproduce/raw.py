"""What is kept of a run: a Parquet file per experiment and one manifest for the folder.

    manifest.json      {"format": 1, "experiments": {NAME: entry}}
    NAME.parquet       the rows; its schema metadata is empty

An entry says which versions, machine, load, seed, scale and command made the rows, and whether they
are all there.  What always holds: the rows are in place before the manifest names them, and both
are replaced as a whole, so an interrupted run leaves what was there before or what is there now.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from rewake.model.errors import DamagedData, UsageError
from rewake_lab.reproduce.experiment import Row

State = Literal["complete", "interrupted", "failed"]
MANIFEST = "manifest.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Kept:
    """How the rows of one experiment came about."""

    name: str
    state: State
    rows: int
    scale: str
    scaling: str
    seed: int
    command: str
    started: str
    seconds: float
    load_after: float
    error: str
    # Versions, the machine and its load at the start: `rewake.report.Facts`.
    facts: dict[str, Any]


def keep(folder: Path, kept: Kept, rows: Sequence[Row]) -> None:
    """Write the rows of an experiment and say so in the manifest; others stay as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kept.name}.parquet"
    if rows:
        partial = path.with_suffix(".partial")
        pq.write_table(pa.Table.from_pylist(list(rows)), partial)
        partial.replace(path)
    else:
        path.unlink(missing_ok=True)
    entries = {name: asdict(entry) for name, entry in manifest(folder).items()}
    entries[kept.name] = asdict(kept)
    text = json.dumps({"format": _FORMAT, "experiments": entries}, indent=2)
    partial = folder / f"{MANIFEST}.partial"
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(folder / MANIFEST)


def manifest(folder: Path) -> dict[str, Kept]:
    """What the folder holds, by experiment; empty if there is no manifest."""
    path = folder / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        content: Any = json.loads(text)
        if content["format"] != _FORMAT:
            raise UsageError(
                f"{path} has format {content['format']}, this version reads {_FORMAT}: "
                "run the experiments again into another folder"
            )
        kept = {name: Kept(**entry) for name, entry in content["experiments"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedData(
            f"{path} is not a manifest of reproduced experiments ({error}); "
            "run the experiments again into another folder"
        ) from error
    if any(entry.state not in get_args(State) for entry in kept.values()):
        raise DamagedData(f"{path} has an entry whose state is not one of {get_args(State)}")
    return kept


def kept_rows(folder: Path, name: str) -> pa.Table:
    """The rows of an experiment, as they were kept."""
    path = folder / f"{name}.parquet"
    try:
        return pq.read_table(path)
    except FileNotFoundError as error:
        raise UsageError(f"{path} is missing though the manifest names it; run it again") from error
    except (pa.ArrowException, OSError) as error:
        raise DamagedData(f"{path} cannot be read ({error}); run the experiment again") from error

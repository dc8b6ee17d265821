"""What a run measured, kept beside its page: tables as Parquet, the rest in manifest.json.

What always holds: a folder with a manifest has every table that the manifest names (it is written
last), and the page can be made again from the folder alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rewake.model.errors import UsageError
from rewake.report.facts import Facts

MANIFEST = "manifest.json"
_FORMAT = 2


def data_folder(page: Path) -> Path:
    """Where the data of a page is kept: report.html has report-data beside it."""
    return page.with_name(f"{page.stem}-data")


def find_data(folder: Path) -> tuple[Path, Path]:
    """The data folder that is meant, and its page; `folder`: of the run, or the data's own."""
    inside = data_folder(folder / "report.html")
    if (inside / MANIFEST).is_file():
        return inside, folder / "report.html"
    whole = folder.absolute()
    return folder, whole.with_name(f"{whole.name.removesuffix('-data')}.html")


@dataclass(frozen=True, slots=True)
class Raw:
    """A run in data.  `kind` says which page shows it; `about` holds whatever JSON can."""

    kind: str
    command: str
    facts: Facts
    about: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, pa.Table] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        """Keep it in a folder; the path of the manifest."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)
        for name, table in self.tables.items():
            pq.write_table(table, folder / f"{name}.parquet")
        manifest = {
            "format": _FORMAT,
            "kind": self.kind,
            "command": self.command,
            "facts": self.facts.as_json(),
            "tables": sorted(self.tables),
            "about": self.about,
        }
        beside = folder / f".{MANIFEST}"
        beside.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        return beside.replace(folder / MANIFEST)

    @classmethod
    def read(cls, folder: Path) -> Raw:
        """What `write` kept."""
        path = folder / MANIFEST
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["format"] != _FORMAT:
                raise UsageError(
                    f"{path} has format {kept['format']!r}, this Rewake reads {_FORMAT}; make the "
                    "page with the Rewake that ran it"
                )
            return cls(
                kind=kept["kind"],
                command=kept["command"],
                facts=Facts.from_json(kept["facts"]),
                about=kept["about"],
                tables={name: pq.read_table(folder / f"{name}.parquet") for name in kept["tables"]},
            )
        except FileNotFoundError as error:
            raise UsageError(
                f"{folder} does not hold the data of a run: there is no {error.filename}"
            ) from error
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise UsageError(f"{path} is damaged: {type(error).__name__}: {error}") from error

"""Where a node's input comes from, on disk: `<folder>/origins/<node>.json`, replaced as a whole."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from rewake.log.files.lineage import WHAT_TO_DO
from rewake.log.files.sealed import sealed, unsealed
from rewake.log.store import publish
from rewake.stores.local import LocalStore

ORIGINS = "origins"


def read_origins(folder: Path, node: str) -> dict[str, Any] | None:
    """What the node's earlier attempts remembered; None when it never had an upstream with a log.

    DamagedData when it is not what was written.
    """
    path = folder / ORIGINS / f"{node}.json"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return unsealed(data, f"{ORIGINS}/{path.name}", WHAT_TO_DO)


def write_origins(folder: Path, node: str, origins: dict[str, Any]) -> None:
    """Make it durable."""
    with closing(LocalStore(folder / ORIGINS, create=True)) as store:
        publish(store, f"{node}.json", sealed(origins))

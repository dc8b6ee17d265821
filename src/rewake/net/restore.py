"""Bringing a backup back: every file is compared with the manifest before the query may have it."""

from __future__ import annotations

import os
import secrets
import shutil
from hashlib import file_digest
from pathlib import Path
from typing import Any

from rewake.log.layout import DRAFT_SUFFIX
from rewake.log.sealed import unsealed
from rewake.model.errors import DamagedData, StorageFault, UnsupportedVersion, UsageError
from rewake.net.backup import (
    FORMAT,
    MANIFEST,
    Backup,
    Progress,
    copy_bytes,
    put_in_place,
    refuse_occupied,
)
from rewake.stores.small_files import sync_folder


def restore_backup(
    backup: Path, to: Path, progress: Progress = lambda _name, _size: None
) -> Backup:
    """Copy a backup to where the query shall go on; nothing is at `to` before it is whole."""
    manifest = read_manifest(backup)
    refuse_occupied(to)
    files: dict[str, dict[str, Any]] = manifest["files"]
    draft = to.with_name(f"{to.name}.{secrets.token_hex(4)}{DRAFT_SUFFIX}")
    try:
        draft.mkdir(parents=True, mode=0o700)
        for name, entry in files.items():
            _copy(backup / name, draft / name, name, entry)
            progress(name, entry["size"])
        for each in (draft, *(path for path in draft.rglob("*") if path.is_dir())):
            sync_folder(each)
        put_in_place(draft, to)
    except OSError as error:
        raise StorageFault(f"cannot restore {backup} to {to}: {error.strerror}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    total = sum(entry["size"] for entry in files.values())
    about = (manifest[name] for name in ("logs", "sinks"))
    return Backup(manifest["query"], manifest["made_at"], len(files), total, *about)


def read_manifest(backup: Path) -> dict[str, Any]:
    """What a backup says that it holds; DamagedData when that is not what was written."""
    try:
        data = (backup / MANIFEST).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"{backup} is not a backup: it has no {MANIFEST}; make one with `rewake backup`"
        ) from None
    manifest = unsealed(data, f"{backup / MANIFEST}", "use another backup")
    if manifest.get("format") != FORMAT:
        raise UnsupportedVersion(
            f"{backup} has format {manifest.get('format')!r}; this program reads {FORMAT}"
        )
    return manifest


def _copy(source: Path, to: Path, name: str, entry: dict[str, Any]) -> None:
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _differs(name, "it is missing") from None
    try:
        if os.fstat(descriptor).st_size != entry["size"]:
            raise _differs(name, f"it does not have {entry['size']} bytes")
        found = copy_bytes(descriptor, to, entry["size"])
    finally:
        os.close(descriptor)
    with to.open("rb") as written:
        if found != entry or file_digest(written, "sha256").hexdigest() != entry["sha256"]:
            raise _differs(name, "its SHA-256 is another")


def _differs(name: str, how: str) -> DamagedData:
    return DamagedData(
        f"{name} in the backup is not what was copied: {how}; use another backup (nothing was "
        "restored)"
    )

"""Bringing a backup back: every file is compared with the manifest before the query may have it."""

from __future__ import annotations

import os
import secrets
import shutil
from hashlib import file_digest
from pathlib import Path
from typing import Any

from rewake.log.files.layout import DRAFT_SUFFIX
from rewake.log.files.sealed import unsealed
from rewake.model.errors import DamagedData, StorageFault, UnsupportedVersion, UsageError
from rewake.net.queries.backup import (
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
    to = to.absolute()
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
        raise StorageFault(f"cannot restore {backup} to {to}: {error}") from error
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
    _check_manifest(manifest, backup / MANIFEST)
    return manifest


def _check_manifest(manifest: dict[str, Any], path: Path) -> None:
    """Raise DamagedData unless all is of its kind: a checksum does not say who wrote it."""
    logs, sinks, files = manifest.get("logs"), manifest.get("sinks"), manifest.get("files")
    texts = [manifest.get("query"), manifest.get("made_at")]
    right = (
        type(logs) is dict
        and type(sinks) is list
        and type(files) is dict
        and all(type(log) is dict and _is_count(log.get("tuples")) for log in logs.values())
        and all(type(text) is str for text in [*texts, *sinks])
        and all(_is_entry(entry) for entry in files.values())
    )
    if not right:
        raise DamagedData(f"{path} is damaged (it lacks something); use another backup")
    for name in manifest["files"]:
        # As they are written, so that none leads out of the folder.
        if not name or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
            raise DamagedData(
                f"{path} names a file that is in no backup: {name!r:.200}; use another backup"
            )


def _is_entry(entry: Any) -> bool:
    return type(entry) is dict and _is_count(entry.get("size")) and type(entry.get("sha256")) is str


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


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

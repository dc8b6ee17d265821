"""A copy of a query's folder as it was at one time, made while the query runs.

    <to>/manifest.json    which query, when, and size and SHA-256 of every file
    <to>/...              what the folder held, but for locks, the endpoint and drafts

What always holds: no part of the copy is ahead of one that it was made from.  First every segment
that is there is held open, so that what a consumer's copy needs again is not trimmed meanwhile.
Then the logs are looked at, consumers before the logs that they read: what a consumer has consumed
is durable upstream by then.  A look is the mark, then the names, then how long each file is; only
afterwards bytes are copied, from files that are only ever appended to.  The coordinator's state
comes last, and says of the logs what the copies hold; but bookmarks are those of before any log was
looked at: every consumer's copy needs no output from before them, and the copy of the log that they
are about has the input behind them.  The query is not asked and does not notice.

A copy is a draft until all of it has been read back and its parts were found to fit.

The design is argued in docs/design/one-history.md.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from rewake.log.files.descriptor import read_descriptor
from rewake.log.files.layout import DESCRIPTOR, DRAFT_SUFFIX, FLOOR, MARK, segment_id
from rewake.log.files.lineage import Lineage, LogRecord, check_record
from rewake.log.files.sealed import sealed, unsealed
from rewake.log.verify import verify
from rewake.model.errors import DamagedData, DamagedLog, HistoryMismatch, StorageFault, UsageError
from rewake.net.clients.client import ENDPOINT_FILE
from rewake.net.nodes.origins_file import ORIGINS
from rewake.node.channels.input_merge import consumed_by
from rewake.node.channels.origins import check_origin, read_lineage
from rewake.node.coordinator.state import STATE_FILE, decode_state, encode_state
from rewake.recovery.bookmark import bookmark_of
from rewake.stores import LocalStore, open_log_reader
from rewake.stores.edge import local_stores
from rewake.stores.local import LOCK_NAME
from rewake.stores.small_files import sync_folder, synced_file

MANIFEST = "manifest.json"
FORMAT = 1
_NODES = "nodes"
_ATTEMPTS = 3
_CHUNK_BYTES = 4 << 20
# A token that lets nodes in has no place in a copy, and neither has who holds a lock.
_LEFT_OUT = frozenset({ENDPOINT_FILE, LOCK_NAME})

Progress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Backup:
    """What was copied; `sinks` keep their positions themselves, outside of the folder."""

    query: str
    made_at: str
    files: int
    bytes: int
    logs: dict[str, dict[str, int]]
    sinks: list[str]


def make_backup(folder: Path, to: Path, progress: Progress = lambda _name, _size: None) -> Backup:
    """Copy the folder of a query that runs or is stopped; nothing is at `to` before it is whole."""
    if not (folder / STATE_FILE).exists():
        raise UsageError(f"{folder} is not the folder of a query: it has no {STATE_FILE}")
    to = to.absolute()
    if to.is_relative_to(folder.absolute()):
        raise UsageError(f"{to} is inside of {folder}, which is to be copied; give another folder")
    refuse_occupied(to)
    for attempt in range(1, _ATTEMPTS + 1):
        draft = to.with_name(f"{to.name}.{secrets.token_hex(4)}{DRAFT_SUFFIX}")
        try:
            made = _copy(folder, draft, progress)
            put_in_place(draft, to)
        except (DamagedData, OSError) as error:
            # What looks like damage may be a change half seen; what is damaged, stays so.
            half_seen = isinstance(error, (DamagedData, FileNotFoundError))
            if half_seen and attempt < _ATTEMPTS:
                continue
            if isinstance(error, DamagedData):
                raise
            raise StorageFault(f"cannot copy {folder} to {to}: {error}") from error
        else:
            return made
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    raise AssertionError("an attempt returns or raises")


def refuse_occupied(to: Path) -> None:
    """Raise UsageError unless `to` is free: nothing is overwritten."""
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise UsageError(f"{to} is there already and is not empty; give a new folder")


def put_in_place(draft: Path, to: Path) -> None:
    """Let a whole folder appear under its name, durably."""
    os.rename(draft, to)
    sync_folder(to.parent)


# --- one attempt ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Look:
    """What a log's files were at one moment: small ones as bytes, segments as open files."""

    node: str
    segments: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    small: dict[str, bytes] = field(default_factory=dict)


def _copy(folder: Path, draft: Path, progress: Progress) -> Backup:
    made_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    draft.mkdir(parents=True, mode=0o700)
    with ExitStack() as stack:
        logs_here = sorted(path.parent for path in (folder / _NODES).glob(f"*/{DESCRIPTOR}"))
        looks = {path.name: _hold(path, stack) for path in logs_here}
        # Before any log is looked at: the copies hold at least what was remembered of them then.
        earlier = decode_state((folder / STATE_FILE).read_bytes())
        manifest: dict[str, Any] = {"files": {}}
        files = manifest["files"]
        for path in _others(folder):
            name = str(path.relative_to(folder))
            files[name] = _write(draft / name, path.read_bytes())
        origins = {node: origin for node in _names(folder) if (origin := _origins(folder, node))}
        for node in _consumers_first(folder, looks, origins, earlier.get("order", [])):
            _look(folder / _NODES / node, looks[node], stack)
        origins |= {node: origin for node in _names(folder) if (origin := _origins(folder, node))}
        state = decode_state((folder / STATE_FILE).read_bytes())
        for look in looks.values():
            for name, entry in _write_log(draft / _NODES / look.node, look).items():
                files[f"{_NODES}/{look.node}/{name}"] = entry
            progress(look.node, sum(look.sizes.values()))
    for node, origin in origins.items():
        files[f"{ORIGINS}/{node}.json"] = _write(draft / ORIGINS / f"{node}.json", sealed(origin))
    _check_remembered(draft, earlier["logs"])
    bookmarks = earlier.get("bookmarks", {})
    logs = _check(draft, origins, bookmarks)
    for node, log in logs.items():
        state["epochs"][node] = max(state["epochs"].get(node, 0), log["epoch"])
        state["logs"][node] = [log["id"], log["epoch"], log["frames"], log["tag"]]
    state |= _told(bookmarks, state)
    files[STATE_FILE] = _write(draft / STATE_FILE, encode_state(state))
    sinks = state["sinks"]
    about = {"query": state["query"], "made_at": made_at, "logs": logs, "sinks": sinks}
    _write(draft / MANIFEST, sealed({"format": FORMAT, **about, **manifest}))
    for each in draft.rglob("*"):
        if each.is_dir():
            sync_folder(each)
    sync_folder(draft)
    total = sum(entry["size"] for entry in files.values())
    return Backup(state["query"], made_at, len(files), total, logs, sinks)


def _told(bookmarks: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """What the copy says of bookmarks: what they were before any log was looked at."""
    state.pop("bookmarks", None)
    order = state.pop("order", None)
    return {"bookmarks": bookmarks, "order": order} if bookmarks else {}


def _others(folder: Path) -> list[Path]:
    """What is neither a log nor kept by name: copied as it is, before any log is looked at."""
    known = {_NODES, ORIGINS, STATE_FILE, *_LEFT_OUT}
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.relative_to(folder).parts[0] not in known
        and not path.name.endswith(DRAFT_SUFFIX)
    ]


def _names(folder: Path) -> list[str]:
    return sorted(path.stem for path in (folder / ORIGINS).glob("*.json"))


def _origins(folder: Path, node: str) -> dict[str, Any]:
    path = folder / ORIGINS / f"{node}.json"
    return unsealed(path.read_bytes(), f"{ORIGINS}/{path.name}", "restore it from a backup")


def _consumers_first(
    folder: Path,
    looks: dict[str, _Look],
    origins: dict[str, dict[str, Any]],
    upstream_first: Sequence[str],
) -> list[str]:
    """The nodes with logs, each before those whose logs it reads.

    Between two of them there may be nodes without a log, of which origins do not tell: then it is
    known in which order the query has them.
    """
    ids = {}
    for node in looks:
        with suppress(DamagedData, UsageError), ExitStack() as stack:
            stores = local_stores(folder / _NODES / node, stack=stack)
            ids[read_descriptor(stores).log_id] = node
    order: list[str] = []

    def visit(node: str, path: tuple[str, ...]) -> None:
        if node in order or node in path:
            return
        for each in origins.get(node, {}).get("channels", {}).values():
            if each["log"] in ids:
                visit(ids[each["log"]], (*path, node))
        order.append(node)

    for node in dict.fromkeys([*upstream_first, *looks]):
        if node in looks:
            visit(node, ())
    return list(reversed(order))


# --- a log ---------------------------------------------------------------------------------------


def _hold(log: Path, stack: ExitStack) -> _Look:
    """Hold every segment open: it can be read even if it is trimmed from now on."""
    look = _Look(log.name)
    with suppress(FileNotFoundError):
        look.small[FLOOR] = (log / FLOOR).read_bytes()
    _open_segments(log, look, stack)
    return look


def _open_segments(log: Path, look: _Look, stack: ExitStack) -> None:
    for name in sorted(os.listdir(log)):
        if segment_id(name) is not None and name not in look.segments:
            with suppress(FileNotFoundError):  # trimmed at this moment
                descriptor = os.open(log / name, os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, descriptor)
                look.segments[name] = descriptor


def _look(log: Path, look: _Look, stack: ExitStack) -> None:
    """The mark first: what it says is durable is in the segments that are there afterwards."""
    with suppress(FileNotFoundError):
        look.small[MARK] = (log / MARK).read_bytes()
    _open_segments(log, look, stack)
    for name in os.listdir(log):
        left_out = name in look.small or name in _LEFT_OUT or name.endswith((DRAFT_SUFFIX, ".idx"))
        if name != FLOOR and segment_id(name) is None and not left_out:
            with suppress(FileNotFoundError):
                look.small[name] = (log / name).read_bytes()
    look.sizes = {name: os.fstat(each).st_size for name, each in look.segments.items()}


def _write_log(to: Path, look: _Look) -> dict[str, dict[str, Any]]:
    written = {name: _write(to / name, data) for name, data in look.small.items()}
    for name, descriptor in look.segments.items():
        written[name] = copy_bytes(descriptor, to / name, look.sizes[name])
    return written


def _write(path: Path, data: bytes) -> dict[str, Any]:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with synced_file(path) as file:
        file.write(data)
    return {"size": len(data), "sha256": sha256(data).hexdigest()}


def copy_bytes(descriptor: int, path: Path, size: int) -> dict[str, Any]:
    """Copy the first bytes of an open file; what they are, for the manifest."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    digest, done = sha256(), 0
    with synced_file(path) as file:
        while done < size:
            data = os.pread(descriptor, min(_CHUNK_BYTES, size - done), done)
            if not data:
                break
            digest.update(data)
            file.write(data)
            done += len(data)
    return {"size": done, "sha256": digest.hexdigest()}


# --- what was copied -----------------------------------------------------------------------------


def _check_remembered(draft: Path, remembered: dict[str, Any]) -> None:
    """See that no log is older than the coordinator knows: a copy would make it the right one."""
    for node, record in remembered.items():
        with ExitStack() as stack:
            path = draft / _NODES / node
            check_record(local_stores(path, create=True, stack=stack), LogRecord(*record), node)


def _check(
    draft: Path, origins: dict[str, dict[str, Any]], bookmarks: dict[str, Any]
) -> dict[str, dict[str, int]]:
    """Read every log of the copy back, and see that consumers fit to what they consumed."""
    logs, lineages = {}, {}
    reached = {node: [bookmark_of(each).position] for node, each in bookmarks.items()}
    for path in sorted((draft / _NODES).glob("*")):
        lineage, frames, consumed = _read_log(path)
        lineages[lineage.log_id] = (path.name, lineage)
        reached[path.name] = consumed
        epoch, tag = lineage.steps[-1].who if lineage.steps else (0, 0)
        about = {"id": lineage.log_id, "epoch": epoch, "tag": tag, "frames": frames}
        logs[path.name] = about | {"tuples": lineage.end}
    for node, origin in origins.items():
        for channel, written in origin["channels"].items():
            known = read_lineage(written, node)
            if known.log_id not in lineages:
                raise HistoryMismatch(
                    f"{node!r} reads a log ({known.log_id:x}) that is not in the folder; see "
                    "`rewake inspect log` for those that are"
                )
            upstream, said = lineages[known.log_id]
            consumed = reached.get(node, [])
            if consumed and consumed[int(channel)]:
                check_origin(node, upstream, known, said, consumed[int(channel)])
    return logs


def _read_log(path: Path) -> tuple[Lineage, int, list[int]]:
    """The lineage of a copied log, its frames, and how far its newest says that it consumed."""
    store = LocalStore(path)
    try:
        found = verify((store,))
    finally:
        store.close()
    if found.damage is not None:
        raise DamagedLog(
            f"the copy of the log of {path.name} is damaged: {found.damage.reason}; see `rewake "
            "inspect log` for the log itself",
            segment=found.damage.segment,
            offset=found.damage.offset,
            sequence=found.damage.sequence,
        )
    with open_log_reader(path) as reader:
        (chain,), end = reader.view.chains, reader.view.frontier
        newest = next(reader.frames_backwards(), None)
        consumed = [] if newest is None else consumed_by(newest)
        return Lineage.of(reader.descriptor.log_id, chain, end.position), end.sequence, consumed

"""Committing batches of rows into a stream, exactly once: tasks stage, one driver commits.

The parties.  Tasks stage rows in files with names that no other attempt has, durably, and say in
their commit messages what they staged.  The driver hands the messages of one attempt per task to
`StreamCommit.commit`; what other attempts staged is never looked at.

A commit, in order:

1. The lock of the folder `staging` is taken, so that one process commits at a time.
2. All shard logs are claimed with one new epoch: from now on nobody else can append.
3. A manifest that a predecessor left is rolled forward: its batch is completed as below.
4. `Concluded`, in the last frame of shard 0, says what has been committed, and where each shard
   ends: shards that are elsewhere are of another time or branch, and refused.  A batch that is in
   the stream already is left out if it has the same rows, and else refused, like one that does
   not follow.  Nothing has changed so far.
5. The manifest is published: identity, staged files, and for each shard the sequence of its first
   frame.  **From here on the batch will be in the stream**, whoever dies.
6. The staged rows are appended to the shard logs, a part a frame, and made durable.
7. A last frame in shard 0 says that the batch is committed, with `Concluded` as it is now.
8. The manifest and the staged files are deleted, and so are the leftovers of earlier batches.

A crash, case by case:

    before 5          the batch is not in the stream; Spark runs it again, with the same identity
    between 5 and 7   the next to open the stream appends the frames that are missing: how many are
                      there follows from where each log ends, and is checked by their BATCH sections
    between 7 and 8   all frames are there: the manifest is deleted

Readers may see the first frames of a batch before its last ones; it will be completed.

A zombie is a writer that slept while another went on without its lock.  It owns the claims or it
does not.  If it does, its successor has not looked for manifests yet and will find its own.  If it
does not, no frame of it counts.  It may still publish a manifest, late.  Then either a newer epoch
has published one too, and only the newest counts; or other frames are where its first should be,
and it is dropped; or nothing has happened since, and its batch is the next one: it is completed.

After the first commit an instance keeps the logs open.  Before the next one it looks whether its
claims are still there: then nobody else has written, and it goes on.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
from google_crc32c import value as crc32c

from rewake.connectors.streams.commit_logs import (
    CommitLogs,
    chains_of,
    check_shards,
    check_writers,
    read_concluded,
)
from rewake.connectors.streams.folder import StreamFolder
from rewake.connectors.streams.manifest import (
    STAGING,
    Manifest,
    StagedFile,
    Writers,
    manifest_epoch,
    manifest_name,
    rows_of,
    staged_identity,
)
from rewake.log.files.layout import DRAFT_SUFFIX
from rewake.log.store import publish
from rewake.model.errors import DamagedLog, Fenced, HistoryMismatch, LogInUse, UsageError
from rewake.node.micro_batches.next_batch import BatchIdentity
from rewake.node.micro_batches.shard_chain import NO_CHAIN
from rewake.stores import LocalStore
from rewake.stores.private import private_opener, put_right

__all__ = ["StreamCommit"]

PATIENCE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.01
_HOLDER: Final = "holder"
# Nobody can tell whether another writer's staged files will still be committed; after so long, no.
_ABANDONED_SECONDS: Final = 7 * 86_400.0


def _go_on(_point: str) -> None:
    """Nothing happens at the points of a commit, except in tests."""


class StreamCommit:
    """The driver's end of one stream.

    Invariant: between commits, what is in the logs is what was committed, or there is a manifest.
    `crash_after` is called with the name of every point of a commit that has been passed.
    """

    def __init__(
        self,
        folder: StreamFolder,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        crash_after: Callable[[str], None] = _go_on,
    ) -> None:
        self.folder = folder
        self._patience_seconds = patience_seconds
        self._passed = crash_after
        self._logs: CommitLogs | None = None
        self._writers = Writers()
        self._chains: list[bytes] = []
        # A process that sleeps with the lock, and was fenced: it need not be waited for again.
        self._fenced_holder = ""

    def commit(
        self,
        identity: BatchIdentity,
        files: Sequence[StagedFile],
        *,
        streaming: bool = True,
        takeover: bool = False,
        allow_gaps: bool = False,
        keep_rows: bool = False,
        remember: bool = False,
    ) -> bool:
        """Put a batch into the stream; False when it is there already.

        Batches of a streaming query must follow each other; `takeover` lets another query go on,
        `allow_gaps` lets batches be missing.  A batch that is there must have the same rows again,
        unless `keep_rows` says that those there are as good.  A batch job (`streaming=False`) may
        come at any time; with `remember`, its identity is kept so that it can be repeated.
        """
        path, rows = str(self.folder.path), rows_of(files)

        def is_next(writers: Writers) -> bool:
            if writers.has(identity):
                if not keep_rows:
                    writers.check_repeat(identity, rows, path)
                return False
            if streaming:
                writers.check_next(identity, path, takeover=takeover, allow_gaps=allow_gaps)
            return True

        with self._staging(identity) as staging, self._released_on_failure():
            logs = self._settled(staging, identity, is_next)
            if logs is None or not is_next(self._writers):
                _delete(staging, (file.name for file in files))
                return False
            writers = self._writers.after(identity, rows, streaming=streaming, remember=remember)
            staged = sorted(files, key=lambda file: (file.partition, file.name))
            held = tuple(file for file in staged if file.parts)
            manifest = Manifest(logs.epoch, identity, writers, logs.ends(), held)
            manifest = manifest.linked(self._chains)
            contents = self._mapped(staging, manifest, logs)
            self._passed("verified")
            if held:  # a batch without rows is one frame, which needs no manifest
                publish(staging, manifest_name(manifest.epoch), manifest.encode())
            self._passed("published")
            self._complete(staging, manifest, logs, contents)
        return True

    def abort(self, files: Sequence[StagedFile]) -> None:
        """Delete what was staged for a batch that will not be committed.

        What a manifest names stays: that batch will be in the stream although its commit failed.
        """
        staging = _opened(self.folder.path)
        try:
            named: set[str] = set()
            for name in _manifests(staging):
                with suppress(FileNotFoundError):  # it has been completed meanwhile
                    named.update(file.name for file in _read(staging, name).files)
            _delete(staging, (file.name for file in files if file.name not in named))
        finally:
            staging.close()

    def close(self) -> None:
        """Release the logs; idempotent."""
        logs, self._logs = self._logs, None
        if logs is not None:
            logs.close()

    # --- who commits -------------------------------------------------------------------------

    @contextmanager
    def _staging(self, identity: BatchIdentity) -> Iterator[LocalStore]:
        """The folder of staged files, locked; by name each time, for it may have been replaced."""
        with ExitStack() as stack:
            staging = _opened(self.folder.path)
            stack.callback(staging.close)
            self._lock(staging, identity)
            self._passed("locked")
            yield staging

    def _lock(self, staging: LocalStore, identity: BatchIdentity) -> None:
        path = self.folder.path / STAGING / _HOLDER
        end = time.monotonic() + self._patience_seconds
        while not staging.try_lock():
            holder = _text(path)
            same_query = holder.startswith(identity.query_text)
            if same_query and holder == self._fenced_holder:
                return
            if time.monotonic() >= end:
                if not same_query:
                    raise self._in_use(holder)
                # A zombie of this query: the claims, not the lock, keep it from writing.
                self._fenced_holder = holder
                self.close()
                return
            time.sleep(_LOOK_SECONDS)
        with open(path, "w", opener=private_opener) as file:
            file.write(f"{identity.query_text} in process {os.getpid()} on {socket.gethostname()}")

    def _in_use(self, holder: str) -> LogInUse:
        return LogInUse(
            f"another writer is committing to the stream at {self.folder.path}: "
            f"{holder or 'it has not said who it is'}. One query writes a stream at a time; stop "
            "the other one, or write to another path"
        )

    @contextmanager
    def _released_on_failure(self) -> Iterator[None]:
        """After a failure nobody knows what is in the air: the next commit begins from the disk."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _settled(
        self, staging: LocalStore, identity: BatchIdentity, is_next: Callable[[Writers], bool]
    ) -> CommitLogs | None:
        """The logs, when nothing is left to be completed; None when there is no need of them."""
        if self._logs is not None and self._logs.owned():
            return self._logs
        self.close()
        # To claim begins new segments: what is repeated or refused should leave none.
        if not _manifests(staging) and not self._look(staging, is_next):
            return None
        self._logs = logs = CommitLogs(self.folder.shards, identity.query_text)
        self._passed("claimed")
        self._roll_forward(staging, logs)
        concluded = read_concluded(self.folder.shards)
        self._writers = concluded.writers
        self._chains = chains_of(self.folder.shards, concluded)
        self._passed("settled")
        return logs

    def _look(self, staging: LocalStore, is_next: Callable[[Writers], bool]) -> bool:
        """Whether the batch is the next one; raises when the shards are not of one history."""
        concluded = read_concluded(self.folder.shards)
        wanted = is_next(concluded.writers)
        if concluded.ends:  # else from before shards were compared
            check_writers(self.folder.shards)
        try:
            check_shards(self.folder.shards, concluded)
        except HistoryMismatch:
            # A zombie may be writing at this moment: who has the claims will see.
            if not _manifests(staging) and read_concluded(self.folder.shards) == concluded:
                raise
        return wanted

    # --- one commit --------------------------------------------------------------------------

    def _mapped(
        self, staging: LocalStore, manifest: Manifest, logs: CommitLogs
    ) -> dict[str, pa.Buffer]:
        """The bytes of the staged files; mapped, they stay whoever deletes the files."""
        shards = len(self.folder.shards)
        for file in manifest.files:
            if not all(0 <= part.shard < shards for part in file.parts):
                raise UsageError(f"{file.name} has rows of a shard that the stream has not")
        try:
            return {file.name: _mapped(staging, file) for file in manifest.files}
        except DamagedLog:
            if logs.owned():
                raise
            raise Fenced(  # a successor has swept what it had committed
                f"a successor writes the stream at {self.folder.path}; epoch {logs.epoch} is over"
            ) from None

    def _complete(
        self,
        staging: LocalStore,
        manifest: Manifest,
        logs: CommitLogs,
        contents: Mapping[str, pa.Buffer],
    ) -> None:
        """Append what is missing, and delete what is not needed any more."""
        logs.append(manifest, contents, self._passed)
        self._passed("durable")
        logs.conclude(manifest)
        self._writers = manifest.writers
        self._chains = [end.chain or NO_CHAIN for end in manifest.ends]
        self._passed("concluded")
        self._clear(staging, manifest)

    def _clear(self, staging: LocalStore, manifest: Manifest) -> None:
        """The manifest first: without it, nobody needs the files."""
        _delete(staging, [manifest_name(manifest.epoch)])
        staging.sync_directory()
        self._passed("cleared")
        now = time.time()
        for name in staging.names():
            identity = staged_identity(name)
            if identity is None:
                continue
            done = identity == manifest.identity or manifest.writers.has(identity)
            if done or self._is_abandoned(name, now):
                _delete(staging, [name])
        self._passed("swept")

    def _is_abandoned(self, name: str, now: float) -> bool:
        with suppress(FileNotFoundError):
            changed = (self.folder.path / STAGING / name).stat().st_mtime
            return now - changed > _ABANDONED_SECONDS
        return False

    # --- what a predecessor left -------------------------------------------------------------

    def _roll_forward(self, staging: LocalStore, logs: CommitLogs) -> None:
        """Complete the newest manifest, if it has to be; the others never came to anything."""
        *older, newest = ("", *_manifests(staging))
        drafts = [name for name in staging.names() if name.endswith(DRAFT_SUFFIX)]
        _delete(staging, [*filter(None, older), *drafts])
        concluded = read_concluded(self.folder.shards)
        if not newest:
            check_shards(self.folder.shards, concluded)
            return
        manifest = _read(staging, newest)
        own, others = self._trace(manifest, logs)
        if others or not (own or _all_there(staging, manifest)):
            # It came too late: no frame of it is there, and none may be.
            check_shards(self.folder.shards, concluded)
            _delete(staging, [newest])
            staging.sync_directory()
        elif own and logs.is_concluded(manifest):
            check_shards(self.folder.shards, concluded)
            self._clear(staging, manifest)
        else:
            check_shards(self.folder.shards, concluded, manifest)
            self._complete(staging, manifest, logs, self._mapped(staging, manifest, logs))

    def _trace(self, manifest: Manifest, logs: CommitLogs) -> tuple[list[int], list[int]]:
        """The shards with frames of the commit, and those with frames of others where they go."""
        identity = manifest.identity
        if len(manifest.bases) != len(self.folder.shards):
            raise DamagedLog(
                f"a manifest of {self.folder.path} has {len(manifest.bases)} shards and the stream "
                f"{len(self.folder.shards)}; restore stream.json from a copy"
            )
        own, others = logs.trace(manifest)
        if others and read_concluded(self.folder.shards).writers.has(identity):
            return [], others  # another attempt of the same batch has been committed
        if own and others:
            raise DamagedLog(
                f"batch {identity.batch} of {identity.query_text} is half in the stream at "
                f"{self.folder.path}, and somebody else has written shards {others} since; only "
                "writers of the stream may append to its logs"
            )
        return own, others


# --- files ---------------------------------------------------------------------------------------


def _opened(stream: Path) -> LocalStore:
    put_right(stream)
    path = stream / STAGING
    return LocalStore(path, create=not path.is_dir())


def _manifests(staging: LocalStore) -> list[str]:
    """The manifests, the newest last."""
    found = {name: manifest_epoch(name) for name in staging.names()}
    return sorted(
        (name for name, epoch in found.items() if epoch is not None),
        key=lambda name: found[name] or 0,
    )


def _read(staging: LocalStore, name: str) -> Manifest:
    return Manifest.decode(staging.read(name, 0, staging.size(name)), name)


def _all_there(staging: LocalStore, manifest: Manifest) -> bool:
    return {file.name for file in manifest.files} <= set(staging.names())


def _delete(staging: LocalStore, names: Iterable[str]) -> None:
    for name in names:
        with suppress(FileNotFoundError):
            staging.delete(name)


def _mapped(staging: LocalStore, file: StagedFile) -> pa.Buffer:
    """The bytes of a staged file, checked; they are read when they are used."""
    path = staging.path / file.name
    try:
        with pa.memory_map(str(path)) as source:
            content = source.read_buffer()
    except FileNotFoundError:
        raise DamagedLog(
            f"the staged file {path} is gone; nothing but the stream's writers may delete files "
            "there. Restart the query: Spark then runs its last batch again"
        ) from None
    if content.size != file.size or crc32c(content) != file.checksum:
        raise DamagedLog(
            f"the staged file {path} is not as it was written; check the disk. Restart the query: "
            "Spark then runs its last batch again",
            segment=file.name,
        )
    return content


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text()
    return ""

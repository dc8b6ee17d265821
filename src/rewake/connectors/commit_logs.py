"""The logs of a stream's shards, open for one committer: appending a commit's frames, once each.

What always holds: all logs are claimed by one epoch before any is looked at; a frame of a commit is
appended only where the manifest says, so a commit that is completed by another has no frame twice.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow as pa

from rewake.connectors.stream_manifest import BatchPart, Manifest, Part, Writers
from rewake.log.claims import current_claim, owns
from rewake.log.frame import Frame, Section, SectionKind, TurnRecord
from rewake.model.errors import DamagedLog, RewakeError
from rewake.stores import LocalStore, LogWriter, open_log_reader, open_log_writer

__all__ = ["CommitLogs", "read_writers"]


class CommitLogs:
    """Every shard's log, owned by one epoch."""

    def __init__(self, shards: Sequence[Path], holder: str) -> None:
        self._shards = shards
        self._stores: list[LocalStore] = []
        self._logs: list[LogWriter] = []
        self._clocks: list[int] = []
        self._folders: list[os.stat_result] = []
        with ExitStack() as stack:
            stack.callback(self.close)
            for shard in shards:
                self._stores.append(LocalStore(shard))
                self._folders.append(os.stat(shard))
            self.epoch = 1 + max(current_claim(store)[0] for store in self._stores)
            who = f"{holder} {os.getpid()}@{socket.gethostname()}"
            for shard in shards:
                self._logs.append(open_log_writer(shard, epoch=self.epoch, holder=who))
            for shard in shards:
                with open_log_reader(shard) as reader:
                    self._clocks.append(reader.end_timestamp)
            stack.pop_all()  # `close` releases them from now on

    def owned(self) -> bool:
        """Whether nobody has claimed any of the logs since, nor put others in their place."""
        return all(
            _is_at(shard, folder) and owns(store, self.epoch)
            for shard, folder, store in zip(self._shards, self._folders, self._stores, strict=True)
        )

    def ends(self) -> tuple[int, ...]:
        """The sequence of each log's next frame."""
        return tuple(log.next_sequence for log in self._logs)

    def close(self) -> None:
        """Release the logs.  What was committed is durable, so it tells of no failure."""
        with suppress(RewakeError), ExitStack() as stack:
            for store in self._stores:
                stack.callback(store.close)
            for log in self._logs:
                stack.callback(log.close)

    # --- a commit ----------------------------------------------------------------------------

    def append(
        self,
        manifest: Manifest,
        contents: Mapping[str, pa.Buffer],
        passed: Callable[[str], None],
    ) -> None:
        """Append the parts that are not there yet, and wait until all are durable."""
        for shard, parts in enumerate(manifest.parts_by_shard()):
            there = self._logs[shard].next_sequence - manifest.bases[shard]
            for number, (file, part) in enumerate(parts):
                if number >= there:
                    mark = BatchPart(manifest.identity, number, len(parts))
                    payload = contents[file.name].slice(part.offset, part.size)
                    self._append(shard, part, mark, Section(SectionKind.RESULTS, payload))
                    passed("appended")
        for log in self._logs:
            if log.durable < log.next_sequence:
                log.flush()

    def conclude(self, manifest: Manifest) -> None:
        """Append the frame that says that the batch is committed."""
        parts = len(manifest.parts_by_shard()[0])
        writers = json.dumps(manifest.writers.to_json()).encode()
        mark = BatchPart(manifest.identity, parts, parts)
        nothing = Part(0, 0, 0, 0, self._clocks[0])
        self._append(0, nothing, mark, Section(SectionKind.METADATA, writers))
        self._logs[0].flush()

    def _append(self, shard: int, part: Part, mark: BatchPart, content: Section) -> None:
        log = self._logs[shard]
        self._clocks[shard] = max(self._clocks[shard], part.time)
        log.append(
            TurnRecord(
                t_end=log.next_position + part.rows,
                timestamp=self._clocks[shard],
                open_windows=0,
                tuples=part.rows,
                records=0,
                sections=(content, Section(SectionKind.BATCH, mark.encode())),
            )
        )

    # --- what is there of a commit -----------------------------------------------------------

    def is_concluded(self, manifest: Manifest) -> bool:
        """Whether all frames of a commit that `trace` has found here are there."""
        parts = len(manifest.parts_by_shard()[0])
        return self._logs[0].next_sequence == manifest.bases[0] + parts + 1

    def trace(self, manifest: Manifest) -> tuple[list[int], list[int]]:
        """The shards that have frames of the commit, and those with frames of others instead."""
        own: list[int] = []
        others: list[int] = []
        for shard, parts in enumerate(manifest.parts_by_shard()):
            there = self._logs[shard].next_sequence - manifest.bases[shard]
            if there < 0:
                raise DamagedLog(
                    f"the log {self._shards[shard]} has {self._logs[shard].next_sequence} frames, "
                    f"but had {manifest.bases[shard]} when a commit began; restore it from a copy"
                )
            if there:
                expected = BatchPart(manifest.identity, there - 1, len(parts))
                is_own = _last_mark(self._shards[shard]) == expected
                (own if is_own else others).append(shard)
        return own, others


def _is_at(path: Path, folder: os.stat_result) -> bool:
    """Whether the folder is at the path; it is held open, so that its number is its own."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), folder)
    return False


def _last_mark(shard: Path) -> BatchPart | None:
    with open_log_reader(shard) as reader:
        for frame in reader.frames_backwards():
            return _mark_of(frame)
    return None


def _mark_of(frame: Frame) -> BatchPart | None:
    payload = frame.section(SectionKind.BATCH)
    return None if payload is None else BatchPart.decode(payload)


def read_writers(shard: Path) -> Writers:
    """Who has written the stream, as its first shard's last commit says."""
    with open_log_reader(shard) as reader:
        for frame in reader.frames_backwards():
            mark = _mark_of(frame)
            stored = frame.section(SectionKind.METADATA)
            if mark is None or mark.part != mark.parts or stored is None:
                continue  # a part of a commit under way, or a frame of another kind of writer
            try:
                return Writers.from_json(json.loads(bytes(stored)))
            except (ValueError, TypeError, KeyError) as error:
                raise DamagedLog(
                    f"frame {frame.sequence} of {shard} does not say who wrote it: {error}"
                ) from error
    return Writers()

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
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from rewake.connectors.streams.manifest import BatchPart, Concluded, Manifest, Part
from rewake.log.files.claims import current_claim, owns
from rewake.log.files.lineage import Lineage
from rewake.log.frame import Frame, Section, SectionKind, TurnRecord
from rewake.model.errors import DamagedLog, HistoryMismatch, RewakeError
from rewake.node.micro_batches.shard_chain import NO_CHAIN, ShardEnd, fits
from rewake.stores import LocalStore, LogWriter, open_log_reader, open_log_writer
from rewake.stores.edge import new_tag

__all__ = [
    "CommitLogs",
    "chains_of",
    "check_for_reading",
    "check_shards",
    "check_writers",
    "read_concluded",
]


_PUT_BACK = (
    "A folder was put back alone, from another time or from a copy that was written by itself; "
    "rows would be lost without a word. Nothing was changed. Put back the folder that was there, "
    "or all shards and `staging` from one copy; if there is none, read what is there and write it "
    "to a new path with a new checkpointLocation"
)


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
            who, tag = f"{holder} {os.getpid()}@{socket.gethostname()}", new_tag()
            for shard in shards:
                self._logs.append(open_log_writer(shard, epoch=self.epoch, holder=who, tag=tag))
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
            mark = manifest.mark(shard, 0)
            for number, (file, part) in enumerate(parts):
                if number >= there:
                    mark = mark._replace(part=number)
                    payload = contents[file.name].slice(part.offset, part.size)
                    self._append(shard, part, mark, Section(SectionKind.RESULTS, payload))
                    passed("appended")
        for log in self._logs:
            if log.durable < log.next_sequence:
                log.flush()

    def conclude(self, manifest: Manifest) -> None:
        """Append the frame that says that the batch is committed."""
        parts = len(manifest.parts_by_shard()[0])
        concluded = json.dumps(Concluded(manifest.writers, manifest.ends).to_json()).encode()
        nothing = Part(0, 0, 0, 0, self._clocks[0])
        content = Section(SectionKind.METADATA, concluded)
        self._append(0, nothing, manifest.mark(0, parts), content)
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
                mark = _last_mark(self._shards[shard])
                # Whether its chain is right is for `check_shards` to say.
                is_own = mark is not None and mark[:3] == (manifest.identity, there - 1, len(parts))
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


def read_concluded(shards: Sequence[Path]) -> Concluded:
    """Who has written the stream and where its shards end, as the first shard's last commit says.

    Before the first commit all shards are empty; where the ends are not known, they are `()`.
    """
    with open_log_reader(shards[0]) as reader:
        whole = reader.first_sequence == 0
        for frame in reader.frames_backwards():
            mark = _mark_of(frame)
            stored = frame.section(SectionKind.METADATA)
            if mark is None or mark.part != mark.parts or stored is None:
                # A part of a commit under way, or a frame of another kind of writer.
                whole = whole and mark is not None
                continue
            try:
                return Concluded.from_json(json.loads(bytes(stored)))
            except (ValueError, TypeError, KeyError) as error:
                raise DamagedLog(
                    f"frame {frame.sequence} of {shards[0]} does not say who wrote it: {error}"
                ) from error
    return Concluded(ends=(ShardEnd(0, NO_CHAIN),) * len(shards) if whole else ())


# --- shards of one history -----------------------------------------------------------------------


def chains_of(shards: Sequence[Path], concluded: Concluded) -> list[bytes]:
    """The chain that each shard goes on with; where there is none yet, it begins."""
    ends = concluded.ends or [_end(shard) for shard in shards]
    return [end.chain or NO_CHAIN for end in ends]


def check_shards(
    shards: Sequence[Path], concluded: Concluded, manifest: Manifest | None = None
) -> None:
    """Raise when a shard is not where the last commit left it, or the one under way has come to."""
    said = concluded.ends
    if not said or (manifest is not None and not manifest.ends):
        return  # from before there were chains
    if len(said) != len(shards):
        raise DamagedLog(
            f"the last commit of {shards[0].parent} was to {len(said)} shards, and the stream has "
            f"{len(shards)}; restore stream.json from a copy"
        )
    coming = manifest.ends if manifest is not None else (None,) * len(shards)
    for shard, path in enumerate(shards):
        found = _end(path)
        if not fits(found, said[shard], coming[shard]):
            raise _mismatch(shards, shard, found, said[shard])


def check_for_reading(shards: Sequence[Path]) -> None:
    """Raise when what is read would be of different times or branches.

    A commit may be under way meanwhile, so a shard may be further than the last one has left it.
    """
    said_ends = read_concluded(shards).ends if len(shards) > 1 else ()
    if not any(end.frames for end in said_ends):
        return  # nobody has committed anything, or from before ends were told
    check_writers(shards)
    for shard, (path, said) in enumerate(zip(shards, said_ends, strict=False)):
        found = _end(path)
        if found.frames < said.frames or (
            found.frames == said.frames and not fits(found, said, None)
        ):
            raise _mismatch(shards, shard, found, said)


def check_writers(shards: Sequence[Path]) -> None:
    """Raise when the shards' last writers cannot be those of one history.

    Who writes claims all shards, one after the other: so no shard ever has a later writer than the
    one before it, and those of one epoch have the same.  This tells of a first shard that was put
    back alone and of which no other has had a row since.
    """
    # Backwards: whoever claims them meanwhile makes those later that are looked at later.
    last = [_last_writer(shard) for shard in reversed(shards)][::-1]
    for shard, (before, after) in enumerate(pairwise(last)):
        if before[0] < after[0] or (before[0] == after[0] and before != after):
            raise HistoryMismatch(
                f"the shards of the stream at {shards[0].parent} are not of one history: the last "
                f"writer of {shards[shard]} (epoch {before[0]}) is not that of "
                f"{shards[shard + 1]} (epoch {after[0]}), and not a later one. {_PUT_BACK}"
            )


def _last_writer(shard: Path) -> tuple[int, int]:
    with open_log_reader(shard) as reader:
        steps = Lineage.of(reader.descriptor.log_id, reader.view.chains[0]).steps
        return steps[-1].who if steps else (0, 0)


def _end(shard: Path) -> ShardEnd:
    with open_log_reader(shard) as reader:
        frames = reader.end_sequence
        for frame in reader.frames_backwards():
            mark = _mark_of(frame)
            return ShardEnd(frames, (mark.chain if mark is not None else b"") or NO_CHAIN)
    return ShardEnd(frames, None if frames else NO_CHAIN)


def _mismatch(
    shards: Sequence[Path], shard: int, found: ShardEnd, said: ShardEnd
) -> HistoryMismatch:
    first, path = shards[0].name, shards[shard]
    if shard == 0:
        what = (
            f"{path} has {found.frames} frames, {said.frames} up to its last commit, and the "
            "manifest of the next one is not in `staging`"
        )
    elif found.frames != said.frames:
        what = f"{path} has {found.frames} frames, and {first} says {said.frames}"
    else:
        what = f"{path} has other rows than {first} says, in as many frames ({found.frames})"
    return HistoryMismatch(
        f"the shards of the stream at {path.parent} are not of one history: {what}. {_PUT_BACK}"
    )

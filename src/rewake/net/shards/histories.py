"""Comparing a shard's log with those of other shards: they must be of one history.

Every shard that a host opens, and every shard when a run of the query begins, is compared with the
next one that can be, as in a ring.  So all are compared, and a shard costs one look at another's
newest frame.  What is compared is the past before the batch that is offered: a shard that has
recorded it already, with whatever rows, has the same past as one that has not.

What always holds: nothing is written; a shard that cannot be read, is elsewhere, or knows no past,
is passed over: who has to go on with it decides by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from rewake.log.frame import SectionKind
from rewake.model.errors import HistoryMismatch, RewakeError
from rewake.net.shards.folder import ShardFolder
from rewake.node.micro_batches.shard_batches import BatchRecord
from rewake.node.micro_batches.shard_chain import Past, strangers
from rewake.stores import open_log_reader

__all__ = ["check_histories", "check_pasts"]


def check_histories(
    folder: ShardFolder, number: int, shards: int, last: BatchRecord, request: BatchRecord
) -> None:
    """Raise `HistoryMismatch` when the shard, whose newest record is `last`, is of another past."""
    own = last.past_of(request.batch)
    if own is None or request.batch == 0:
        return
    for step in range(1, shards):
        past = _past(folder.shard((number + step) % shards), request)
        if past is not None and past.since == own.since:
            if past != own:
                pasts = {each: _past(folder.shard(each), request) for each in range(shards)}
                check_pasts(folder, pasts | {number: own}, request.batch)
            return


def check_pasts(folder: ShardFolder, pasts: Mapping[int, Past | None], batch: int) -> None:
    """Raise when shards had different pasts before a batch; the error names those of the fewest."""
    known = {shard: past for shard, past in pasts.items() if past is not None}
    odd = strangers(known)
    if not odd:
        return
    names = ", ".join(str(folder.shard(each)) for each in odd)
    others = next(each for each in sorted(known) if each not in odd)
    raise HistoryMismatch(
        f"the shards in {folder.path} are not of one history: before batch {batch}, {names} had "
        f"batches with other rows than {folder.shard(others).name} and those like it. A shard's "
        "folder was put back alone, from another time or from a copy that was continued by itself. "
        "Nothing was changed in it: put back the folder that was there; or restore the copies of "
        "the whole `at` and of the checkpoint that were made together; or start over with a new "
        "`at` and a new checkpointLocation"
    )


def _past(path: Path, request: BatchRecord) -> Past | None:
    """What a shard's newest record knows of the past before the batch that is offered."""
    with suppress(RewakeError), open_log_reader(path) as reader:
        for frame in reader.frames_backwards():
            section = frame.section(SectionKind.BATCH)
            record = BatchRecord.decode(bytes(section or b""))
            if record.identity.query == request.identity.query:
                return record.past_of(request.batch)
            break
    return None

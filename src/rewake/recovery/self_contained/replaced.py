"""The newest batch of a self-contained log computed anew, with other rows.

Who hands over micro-batches may plan one anew after a power loss: the same number, other rows.  The
state before the batch follows from the frames before it, so it is rebuilt from those, and takes the
new rows.  The record goes behind the old one, because logs only grow.  It holds a CHECK of every
open part and the results, so that no recovery reads what is before it; and its tuples are at
positions behind the old ones', so that no part has the id of one that never was.

What always holds: the log is the old batch's until the new record is durable, and the new one's
from then on; a batch can be replaced as often as it takes, because frames with the same batch are
passed over together, and `frames_needed` keeps the ones before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from rewake.log.frame import Frame
from rewake.recovery.approach import Turn
from rewake.recovery.self_contained.engine import OperatorFactory, SelfContained, reading
from rewake.recovery.self_contained.frames import MarkedFrame, marked

__all__ = ["Replaced", "replaced"]


class Replaced(NamedTuple):
    """The operator after the turn, and the turn, whose record is to be appended."""

    state: SelfContained
    turn: Turn


def replaced(
    operator_factory: OperatorFactory,
    frames_newest_first: Iterable[Frame],
    of_batch: Callable[[bytes], bool],
    rows: pa.RecordBatch,
    identity: bytes,
) -> Replaced | None:
    """Process `rows` in place of the newest batch; None when the log has no state before it.

    `of_batch` tells identities of the newest batch from those of earlier ones.
    """
    with reading():
        frames = marked(frames_newest_first)
        newest = oldest = next(frames)
        before: MarkedFrame | None = None
        for each in frames:
            if not of_batch(each.identity):
                before = each
                break
            oldest = each
        if before is None and (oldest.frame.sequence or oldest.mark.start):
            # A log that begins with somebody else's state, or was trimmed.
            return None
        first = [] if before is None else [before.frame]
        older = chain(first, (each.frame for each in frames))
        state = SelfContained.recover(operator_factory, older)
    return Replaced(state, state.turn_instead(rows, identity, newest.mark))

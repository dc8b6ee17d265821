"""The mark: how far the log is durable, and how far it is complete.

Four slots of 1024 bytes.  Slots 0 and 1 take the running marks in turn, written after every sync
but not themselves synced.  Slots 2 and 3 take the anchors in turn: marks that are synced at once,
when a writer opens, rotates or closes.  Of two anchors at most one is ever unsynced.

    offset  size  field
         0     4  magic       "RWKM"
         4     2  version     1
         6     2  stripes     S
         8     8  log_id
        16     8  epoch       of the writer
        24     8  generation  counts the running marks; its parity chooses the slot
        32     8  anchors     counts the anchors; its parity chooses the slot
        40     .  durable     a frontier
         .     .  completed   a frontier: equal to `durable` in stable mode, ahead in delayed mode
         .     4  crc         CRC-32C of everything before it

    a frontier: sequence u64, position u64, timestamp i64, then per stripe
                segment first_sequence u64, segment epoch u64, byte offset of its end u64

The first mark of a log is written when it is created, as an anchor: its frontiers are at sequence
0 and name no segment (every stripe ends at byte 0, which is in none).

After a kill the mark is exact.  After power loss it may lag, no further than the last anchor, but
it never leads: every frame below `durable.sequence` must be there.  `completed` promises nothing
after power loss.

A mark counts up to the seals of later epochs and no further: a writer that goes back seals the log
below what older marks say, and those may be all there is (see `survey`).
"""

from struct import Struct
from typing import Final, NamedTuple

from google_crc32c import value as crc32c

from rewake.log.files.damage import damaged
from rewake.log.files.layout import MARK, MAX_COUNT, SegmentId
from rewake.log.store import Store
from rewake.model.errors import DamagedLog

__all__ = [
    "MIN_TIMESTAMP",
    "SLOT_SIZE",
    "Frontier",
    "Mark",
    "StripeEnd",
    "first_marks",
    "read_mark",
]

SLOT_SIZE: Final = 1024
RUNNING_SLOTS: Final = 2
SLOTS: Final = 4
MIN_TIMESTAMP: Final = -(1 << 63)

_MAGIC: Final = b"RWKM"
_VERSION: Final = 1
_CRC: Final = Struct("<I")


def _body(stripes: int) -> Struct:
    return Struct("<4sHHQQQQ" + 2 * ("QQq" + "QQQ" * stripes))


_BODIES: Final = {stripes: _body(stripes) for stripes in range(1, 17)}
assert _BODIES[16].size + 4 <= SLOT_SIZE


class StripeEnd(NamedTuple):
    """In one stripe, the byte behind the last frame: an offset in a segment."""

    segment: SegmentId
    offset: int


class Frontier(NamedTuple):
    """A place between two frames: before it, all is there; after it, nothing is promised."""

    sequence: int
    position: int
    timestamp: int
    ends: tuple[StripeEnd, ...]


class Mark(NamedTuple):
    """How far a writer had come when it wrote this."""

    log_id: int
    epoch: int
    generation: int
    anchors: int
    durable: Frontier
    completed: Frontier

    @property
    def is_first(self) -> bool:
        """Whether it was written when the log was created, before it had any segment."""
        return not any(end.offset for end in self.durable.ends)

    def slot(self, *, anchor: bool) -> int:
        """Where in the file this mark belongs: a byte offset."""
        number = RUNNING_SLOTS + self.anchors % 2 if anchor else self.generation % 2
        return number * SLOT_SIZE

    def encode(self) -> bytes:
        """The bytes of the slot."""
        stripes = len(self.durable.ends)
        body = _BODIES[stripes].pack(
            _MAGIC, _VERSION, stripes, self.log_id, self.epoch, self.generation, self.anchors,
            *_flat(self.durable), *_flat(self.completed),
        )  # fmt: skip
        return body + _CRC.pack(crc32c(body))


def first_marks(*, log_id: int, stripes: int) -> bytes:
    """The file of a log that is being created: the first mark, and slots that are empty yet."""
    nowhere = (StripeEnd(SegmentId(0, 0), 0),) * stripes
    start = Frontier(0, 0, MIN_TIMESTAMP, nowhere)
    mark = Mark(log_id, 0, 0, 0, start, start)
    return bytes(mark.slot(anchor=True)) + mark.encode().ljust(2 * SLOT_SIZE, b"\0")


def read_mark(store: Store, *, log_id: int, stripes: int, anchors_only: bool = False) -> Mark:
    """The newest mark; DamagedLog when there is none.

    A slot that is neither empty nor valid was torn, or is damaged: another one speaks.  When no
    slot can be read, nothing says any more what must be there.  The file never changes its length.
    """
    try:
        data = store.read(MARK, 0, SLOTS * SLOT_SIZE)
    except FileNotFoundError:
        raise _unreadable("is missing") from None
    if len(data) < SLOTS * SLOT_SIZE:
        raise _unreadable(f"is cut off at byte {len(data)}")
    slots = [data[start : start + SLOT_SIZE] for start in range(0, SLOTS * SLOT_SIZE, SLOT_SIZE)]
    if anchors_only:
        slots = slots[RUNNING_SLOTS:]
    marks = [mark for slot in slots if (mark := _decode(slot, log_id, stripes)) is not None]
    if marks:
        return max(marks, key=_advance)
    raise _unreadable("is damaged in all its slots")


def _advance(mark: Mark) -> tuple[int, ...]:
    # By epoch first: a writer that went back is newer, though an older one had come further.
    return mark.epoch, mark.durable.sequence, mark.generation, mark.anchors


def _flat(frontier: Frontier) -> tuple[int, ...]:
    sequence, position, timestamp, ends = frontier
    if len(ends) == 1:  # the common case, on the hot path of the writer
        (first_sequence, epoch), offset = ends[0]
        return sequence, position, timestamp, first_sequence, epoch, offset
    flat = [sequence, position, timestamp]
    for segment, offset in ends:
        flat += (*segment, offset)
    return tuple(flat)


def _decode(slot: bytes, log_id: int, stripes: int) -> Mark | None:
    body = _BODIES[stripes]
    if len(slot) < body.size + 4:
        return None
    crc = int.from_bytes(slot[body.size : body.size + 4], "little")
    if slot[:4] != _MAGIC or crc32c(slot[: body.size]) != crc:
        return None
    _, version, found_stripes, found_id, epoch, generation, anchors, *rest = body.unpack_from(slot)
    if version != _VERSION or found_stripes != stripes or found_id != log_id:
        return None
    half = len(rest) // 2
    # A timestamp is the stream's own: it may be any, also that of a stream that has ended.
    counts = (*rest[:2], *rest[3:half], *rest[half : half + 2], *rest[half + 3 :])
    if max(epoch, generation, anchors, *counts) > MAX_COUNT:
        return None
    durable, completed = _frontier(rest[:half]), _frontier(rest[half:])
    return Mark(log_id, epoch, generation, anchors, durable, completed)


def _frontier(fields: list[int]) -> Frontier:
    sequence, position, timestamp, *ends = fields
    return Frontier(
        sequence,
        position,
        timestamp,
        tuple(
            StripeEnd(SegmentId(ends[i], ends[i + 1]), ends[i + 2]) for i in range(0, len(ends), 3)
        ),
    )


def _unreadable(state: str) -> DamagedLog:
    return damaged(
        f"the durable mark {state}", MARK, 0, remedy=f"restore the file `{MARK}` from a copy, or "
    )

"""The floor: the first sequence that is retained.  Published before anything below it is deleted.

    offset  size  field
         0     4  magic     "RWKB"
         4     4  version   1
         8     8  log_id
        16     8  sequence  frames below it may be gone
        24     4  zero
        28     4  crc       CRC-32C of bytes 0..27

A log that was never trimmed has no such file: its floor is 0.
"""

from struct import Struct
from typing import Final

from google_crc32c import value as crc32c

from rewake.log.files.claims import publish_as_owner
from rewake.log.files.layout import FLOOR
from rewake.log.store import Store, publish
from rewake.model.errors import DamagedLog

__all__ = ["publish_floor", "read_floor"]

_MAGIC: Final = b"RWKB"
_VERSION: Final = 1
_FIELDS: Final = Struct("<4sIQQI")
_CRC: Final = Struct("<I")
_SIZE: Final = _FIELDS.size + _CRC.size


def publish_floor(store: Store, *, log_id: int, sequence: int, epoch: int | None = None) -> None:
    """Say durably that frames below `sequence` may go; Fenced when `epoch` was superseded."""
    fields = _FIELDS.pack(_MAGIC, _VERSION, log_id, sequence, 0)
    data = fields + _CRC.pack(crc32c(fields))
    if epoch is None:
        publish(store, FLOOR, data)
    else:
        publish_as_owner(store, epoch, FLOOR, data)


def read_floor(store: Store, *, log_id: int) -> int:
    """The first retained sequence."""
    try:
        data = store.read(FLOOR, 0, _SIZE + 1)
    except FileNotFoundError:
        return 0
    if len(data) == _SIZE and _CRC.unpack_from(data, _FIELDS.size)[0] == crc32c(data[:-4]):
        magic, version, found_id, sequence, zero = _FIELDS.unpack_from(data)
        if (magic, version, found_id, zero) == (_MAGIC, _VERSION, log_id, 0):
            return int(sequence)
    raise DamagedLog(
        f"the file `{FLOOR}` is damaged, so what was trimmed cannot be told from what was lost; "
        "restore it from a copy",
        segment=FLOOR,
        offset=0,
    )

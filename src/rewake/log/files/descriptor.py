"""The descriptor of a log: who it is, published once and never changed.

    offset  size  field
         0     4  magic     "RWKL" (LOG) or "RWKS" (STRIPE)
         4     4  version   of the format of everything in the folder: 1
         8     4  size      of the body
        12     4  crc       CRC-32C of bytes 0..11 and the body
        16     .  body      JSON, UTF-8

The body of `LOG` is {"log_id", "name", "stripes", "metadata"}; a metadata value is a string, or
{"base64": ...} for bytes.  The body of `STRIPE` is {"log_id", "stripe"}: it makes a wrong or
missing directory show before anything is read.  The version is looked at before the checksum: a
newer program may compute it otherwise.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final, TypeAlias

from google_crc32c import value as crc32c

from rewake.log.files.layout import DESCRIPTOR, FLOOR, STRIPE, segment_id
from rewake.log.store import Store, publish
from rewake.model.errors import DamagedLog, NotALog, UnsupportedVersion, UsageError
from rewake.model.names import checked_name

__all__ = [
    "MAX_STRIPES",
    "Descriptor",
    "Metadata",
    "publish_descriptor",
    "read_descriptor",
    "refuse_begun",
]

Metadata: TypeAlias = Mapping[str, str | bytes]

VERSION: Final = 1
MAX_STRIPES: Final = 16
MAX_BODY_BYTES: Final = 16 << 20

_LOG_MAGIC: Final = b"RWKL"
_STRIPE_MAGIC: Final = b"RWKS"
_HEAD: Final = Struct("<4sIII")
_UNSUMMED: Final = Struct("<4sII")


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What never changes about a log."""

    log_id: int
    name: str
    stripes: int = 1
    metadata: Metadata = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_name(self.name)
        if not 1 <= self.stripes <= MAX_STRIPES:
            raise UsageError(f"{self.stripes} stripes; a log has 1 to {MAX_STRIPES}")
        if not 0 < self.log_id < 1 << 64:
            raise UsageError(f"log id {self.log_id} is not a positive 64-bit number")


def publish_descriptor(stores: Sequence[Store], descriptor: Descriptor) -> None:
    """Make the log exist: the stripes first, `LOG` last, so that it exists whole or not at all."""
    for stripe, store in enumerate(stores[1:], 1):
        whose = {"log_id": descriptor.log_id, "stripe": stripe}
        publish(store, STRIPE, _encode(_STRIPE_MAGIC, whose))
    body = {
        "log_id": descriptor.log_id,
        "name": descriptor.name,
        "stripes": descriptor.stripes,
        "metadata": {key: _to_json(value) for key, value in descriptor.metadata.items()},
    }
    publish(stores[0], DESCRIPTOR, _encode(_LOG_MAGIC, body))


def refuse_begun(store: Store) -> None:
    """Raise DamagedLog when this folder, which has no descriptor, was a log's or a stripe's."""
    for name in sorted(store.names()):
        # A claim proves nothing: it and the descriptor may become durable by the same sync.
        if segment_id(name) or name == FLOOR:
            raise DamagedLog(
                f"the descriptor {DESCRIPTOR} or {STRIPE} is missing, though {name} is here, so a "
                "log was; restore the descriptor from a copy (it never changes after creation)",
                segment=DESCRIPTOR,
                offset=0,
            )


def read_descriptor(stores: Sequence[Store]) -> Descriptor:
    """The descriptor of the log in these stripes, checked against every one of them."""
    body = _read(stores[0], DESCRIPTOR, _LOG_MAGIC)
    try:
        metadata = {str(key): _from_json(value) for key, value in body["metadata"].items()}
        if type(body["log_id"]) is not int or type(body["stripes"]) is not int:
            raise TypeError("log_id and stripes must be whole numbers")
        descriptor = Descriptor(body["log_id"], body["name"], body["stripes"], metadata)
    except (KeyError, TypeError, AttributeError, ValueError, UsageError) as error:
        raise _damaged(DESCRIPTOR, f"its fields are impossible ({error})") from error
    if len(stores) != descriptor.stripes:
        raise NotALog(
            f"log {descriptor.name!r} has {descriptor.stripes} stripes but {len(stores)} were "
            "given; give the directories of all of them, in the order of creation"
        )
    for stripe, store in enumerate(stores[1:], 1):
        _check_stripe(store, stripe, descriptor)
    return descriptor


def _check_stripe(store: Store, stripe: int, descriptor: Descriptor) -> None:
    body = _read(store, STRIPE, _STRIPE_MAGIC)
    if body != {"log_id": descriptor.log_id, "stripe": stripe}:
        raise NotALog(
            f"directory {stripe} is not stripe {stripe} of log {descriptor.name!r} (it says "
            f"{body}); give the directories of the log in the order of creation"
        )


def _encode(magic: bytes, body: Mapping[str, Any]) -> bytes:
    text = json.dumps(body, sort_keys=True).encode()
    if len(text) > MAX_BODY_BYTES:
        raise UsageError(f"metadata of {len(text)} bytes; the limit is {MAX_BODY_BYTES}")
    head = _UNSUMMED.pack(magic, VERSION, len(text))
    return _HEAD.pack(magic, VERSION, len(text), crc32c(head + text)) + text


def _read(store: Store, name: str, magic: bytes) -> dict[str, Any]:
    try:
        data = store.read(name, 0, _HEAD.size + MAX_BODY_BYTES)
    except FileNotFoundError:
        refuse_begun(store)
        raise NotALog(
            f"there is no log here: the file {name} is missing; check the path, or create the log"
        ) from None
    if len(data) < _HEAD.size:
        raise _damaged(name, "it is too short")
    found, version, size, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if found != magic:
        raise _damaged(name, "it does not begin as one")
    if version != VERSION:
        raise _newer(name, version)
    if size != len(body) or crc32c(data[: _UNSUMMED.size] + body) != crc:
        raise _damaged(name, "it fails its checksum")
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _damaged(name, f"its body cannot be read ({error})") from error
    if not isinstance(parsed, dict):
        raise _damaged(name, "its body is no object")
    return parsed


def _to_json(value: str | bytes) -> str | dict[str, str]:
    if isinstance(value, str):
        return value
    return {"base64": base64.b64encode(value).decode()}


def _from_json(value: str | dict[str, str]) -> str | bytes:
    if isinstance(value, str):
        return value
    try:
        return base64.b64decode(value["base64"], validate=True)
    except binascii.Error as error:
        raise ValueError(f"metadata is not base64: {error}") from error


def _damaged(name: str, reason: str) -> DamagedLog:
    return DamagedLog(
        f"the descriptor {name} is damaged: {reason}; restore this one file from a copy "
        "(it never changes after creation)",
        segment=name,
        offset=0,
    )


def _newer(name: str, version: int) -> UnsupportedVersion:
    return UnsupportedVersion(
        f"{name} has format version {version}; this program reads version {VERSION}: "
        "use the program that wrote it"
    )

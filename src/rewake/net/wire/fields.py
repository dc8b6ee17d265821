"""How the fields of control messages become JSON values, and strictly back.

What always holds: reading a field returns a value of its declared type or raises `WrongField`;
what a message's dataclass does not declare is refused.  Writing never fails because a text is long
or a figure is not a number: an error report that cannot be sent helps nobody.
"""

import json
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from rewake.log.files.lineage import Lineage, LogRecord, Step
from rewake.node.messages import Peer
from rewake.recovery.bookmark import Bookmark, bookmark_of

__all__ = [
    "ADDRESS",
    "BOOKMARK",
    "COUNT",
    "FIGURES",
    "FLAG",
    "INTEGER",
    "OPTIONAL_BOOKMARK",
    "OPTIONAL_LINEAGE",
    "OPTIONAL_PEER",
    "OPTIONAL_RECORD",
    "PEERS",
    "PLACES",
    "TEXT",
    "Field",
    "WrongField",
    "json_object",
]

# Longer texts (error reports) are shortened in the middle by the sender.
MAX_TEXT: Final = 16 << 10


class WrongField(ValueError):
    """A JSON value is not what the field must hold; the message says what it must be."""


class Field(NamedTuple):
    """How one field is written and read."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def json_object(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`, or `WrongField`."""
    try:
        value = json.loads(data.decode(), parse_constant=_refuse_constant)
        if b"\\u" in data:
            # An escaped half of a surrogate pair is a text that nobody could print or send on.
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise WrongField(f"not JSON ({type(error).__name__})") from error
    if type(value) is not dict:
        raise WrongField("not a JSON object")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# --- the kinds of fields -------------------------------------------------------------------------


def _same(value: Any) -> Any:
    return value


def _shorten(text: str) -> str:
    # Halves of surrogate pairs come from file names that are no UTF-8.
    text = text.encode(errors="backslashreplace").decode()
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def _read_text(value: Any) -> str:
    if type(value) is not str:
        raise WrongField("not a text")
    return value


def _read_integer(value: Any) -> int:
    # `type`, because True is an int, too.
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise WrongField("not an integer of 64 bits")
    return value


def _read_count(value: Any) -> int:
    if _read_integer(value) < 0:
        raise WrongField("negative")
    return int(value)


def _read_flag(value: Any) -> bool:
    if type(value) is not bool:
        raise WrongField("not true or false")
    return value


def _read_address(value: Any) -> tuple[str, int]:
    if type(value) is not list or len(value) != 2:
        raise WrongField("not an address [host, port]")
    host, port = _read_text(value[0]), _read_count(value[1])
    if not 0 < len(host) <= 255 or not host.isprintable() or port > 65535:
        raise WrongField("not an address [host, port]")
    return host, port


def _write_peer(peer: Peer | None) -> Any:
    return None if peer is None else [*peer.address, peer.epoch]


def _read_peer(value: Any) -> Peer:
    if type(value) is not list or len(value) != 3:
        raise WrongField("not a peer [host, port, epoch]")
    return Peer(_read_address(value[:2]), _read_count(value[2]))


def _read_optional_peer(value: Any) -> Peer | None:
    return None if value is None else _read_peer(value)


def _write_peers(peers: dict[str, Peer]) -> Any:
    return {name: _write_peer(peer) for name, peer in peers.items()}


def _read_object(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise WrongField("not an object")
    return value


def _read_peers(value: Any) -> dict[str, Peer]:
    return {name: _read_peer(peer) for name, peer in _read_object(value).items()}


def _read_places(value: Any) -> list[list[Any]]:
    if type(value) is not list:
        raise WrongField("not a list of places")
    return [_read_place(each) for each in value]


def _read_place(value: Any) -> list[Any]:
    if type(value) is not list or len(value) != 6:
        raise WrongField("not a place [node, output, host, port, epoch, shard]")
    return [
        _read_text(value[0]),
        _read_count(value[1]),
        *_read_address(value[2:4]),
        _read_count(value[4]),
        _read_count(value[5]),
    ]


def _write_lineage(lineage: Lineage | None) -> Any:
    if lineage is None:
        return None
    return [lineage.log_id, lineage.end, [list(step) for step in lineage.steps]]


def _read_optional_lineage(value: Any) -> Lineage | None:
    if value is None:
        return None
    if type(value) is not list or len(value) != 3 or type(value[2]) is not list:
        raise WrongField("not a lineage [log, end, steps]")
    steps = []
    for each in value[2]:
        if type(each) is not list or len(each) != 3:
            raise WrongField("not a step [epoch, position, tag]")
        steps.append(Step(*(_read_count(number) for number in each)))
    return Lineage(_read_count(value[0]), tuple(steps), _read_count(value[1]))


def _write_record(record: LogRecord | None) -> Any:
    return None if record is None else list(record)


def _read_optional_record(value: Any) -> LogRecord | None:
    if value is None:
        return None
    if type(value) is not list or len(value) != 4:
        raise WrongField("not a record of a log [log, epoch, sequence, tag]")
    return LogRecord(*(_read_count(each) for each in value))


def _write_bookmark(bookmark: Bookmark | None) -> Any:
    return None if bookmark is None else list(bookmark)


def _read_bookmark(value: Any) -> Bookmark:
    try:
        return bookmark_of(value)
    except ValueError as error:
        raise WrongField(str(error)) from error


def _read_optional_bookmark(value: Any) -> Bookmark | None:
    return None if value is None else _read_bookmark(value)


def _write_figures(value: Any) -> Any:
    """The same figures as JSON has them: numbers of numpy become plain, NaN becomes null."""
    if isinstance(value, dict):
        return {_shorten(str(name)): _write_figures(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_write_figures(each) for each in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float):
        return value
    return _shorten(str(value))


TEXT: Final = Field(_shorten, _read_text)
INTEGER: Final = Field(_same, _read_integer)
COUNT: Final = Field(_same, _read_count)
FLAG: Final = Field(_same, _read_flag)
ADDRESS: Final = Field(list, _read_address)
BOOKMARK: Final = Field(_write_bookmark, _read_bookmark)
OPTIONAL_BOOKMARK: Final = Field(_write_bookmark, _read_optional_bookmark)
OPTIONAL_LINEAGE: Final = Field(_write_lineage, _read_optional_lineage)
OPTIONAL_RECORD: Final = Field(_write_record, _read_optional_record)
OPTIONAL_PEER: Final = Field(_write_peer, _read_optional_peer)
PEERS: Final = Field(_write_peers, _read_peers)
PLACES: Final = Field(_same, _read_places)
FIGURES: Final = Field(_write_figures, _read_object)

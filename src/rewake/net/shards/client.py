"""The task's side of a shard: find its owner, or have it taken over; send tuples, get results.

A task asks the holder of the shard's claim, wherever that is.  When nobody answers there, it asks
the shard host of its own executor (and starts it, if there is none) to claim the shard above that
epoch.  Of several that try, one wins; the others look again and find it.

What always holds: a batch is offered again until an owner has answered or refused it, with the same
identity, so that the log decides whether it happened; nothing heavy is imported, because Spark
starts Python workers often.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from rewake.model import errors
from rewake.model.errors import BadPeer, NotOwner, OperatingFault, RewakeError
from rewake.net.queries.ancestry import Process, nearest_jvm
from rewake.net.shards.folder import ShardFolder
from rewake.net.shards.wire import Disconnected, HungUp, ShardConnection
from rewake.net.wire.addresses import leave_unpaced
from rewake.net.wire.authentication import Token
from rewake.node.messages import Address
from rewake.operators.row_digest import RowDigest
from rewake.stores.private import make_private_folder, private_opener, put_right

__all__ = [
    "Rows",
    "ShardAnswer",
    "ShardRequest",
    "ask_shard",
    "host_address",
    "stop_host",
    "wake_host",
]

# A host says every two seconds that it is at work.
_SILENCE_SECONDS: Final = 30.0
_CONNECT_SECONDS: Final = 5.0
# How often a host is asked again that hangs up before it has heard who we are, and how long after.
_KNOCKS: Final = 20
_KNOCK_SECONDS: Final = 0.005
_START_SECONDS: Final = 60.0
# How often it may be killed meanwhile.
_STARTS: Final = 3
# How long a host stays that nobody asks anything.
IDLE_SECONDS: Final = "600"
_ATTEMPTS: Final = 20
_PAUSE_SECONDS: Final = 0.05
# Tuples up to this size are kept until the answer is there, to offer them again without Spark.
_KEPT_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class ShardRequest:
    """A shard and a batch of it; `operator` is a spec as JSON values, `schema` its input."""

    at: str
    shard: int
    shards: int
    query: bytes
    run: bytes
    batch: int
    operator: dict[str, Any]
    schema: pa.Schema
    order_by: tuple[str, ...] = ()
    gaps: str = "refuse"
    listen: str = "127.0.0.1"
    # How long a recovery of the shard may take; None: as long as it takes.
    recover_within_ms: float | None = None

    def header(self, take: int | None) -> dict[str, Any]:
        """What goes before the tuples."""
        return {
            "request": "batch",
            "at": ShardFolder(self.at).place,
            "shard": self.shard,
            "shards": self.shards,
            "query": self.query.hex(),
            "run": self.run.hex(),
            "batch": self.batch,
            "operator": self.operator,
            "schema": b64encode(self.schema.serialize().to_pybytes()).decode(),
            "order_by": list(self.order_by),
            "gaps": self.gaps,
            "recover_within_ms": self.recover_within_ms,
            "take": take,
        }


class ShardAnswer(NamedTuple):
    """Figures for people, and the results as they arrive."""

    figures: dict[str, Any]
    results: Iterator[pa.RecordBatch]


class Rows(Protocol):
    """A task's input: the shard's tuples, and behind them `digest`, of all the batch's rows."""

    @property
    def digest(self) -> RowDigest:
        """Which rows the batch has; complete when all messages have been read."""

    def messages(self) -> Iterator[pa.Buffer]:
        """The shard's tuples as Arrow messages, once."""


class _Tuples:
    """A task's input, which Spark gives once: kept while it is small, to be sent again."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._rest = rows.messages()
        self._kept: list[pa.Buffer] | None = []
        self._bytes = 0

    def __iter__(self) -> Iterator[pa.Buffer]:
        if self._kept is None:
            raise OperatingFault(
                "the shard's owner was lost while it was given a batch that is too large to be "
                "kept; Spark's next attempt offers it again"
            )
        yield from tuple(self._kept)
        for message in self._rest:
            self._bytes += message.size
            if self._bytes > _KEPT_BYTES:
                self._kept = None
            elif self._kept is not None:
                self._kept.append(message)
            yield message

    def behind(self) -> dict[str, Any]:
        """What goes behind the tuples, when all have been sent."""
        return {"rows": self._rows.digest.encode().hex()}


def ask_shard(
    request: ShardRequest,
    rows: Rows,
    watched: Callable[[], Process] = nearest_jvm,
) -> ShardAnswer:
    """Have a batch processed by the owner of its shard."""
    folder = ShardFolder(request.at)
    token = folder.token()
    tuples = _Tuples(rows)
    unreachable = -2
    trouble: RewakeError | None = None
    for attempt in range(_ATTEMPTS):
        owner = folder.owner(request.shard)
        take: int | None = None
        if owner.address is None or owner.epoch == unreachable:
            address = host_address(folder, request.listen, watched())
            take = owner.epoch
        else:
            address = owner.address
        try:
            return _ask(address, token, request.header(take), tuples)
        except (NotOwner, Disconnected, BadPeer) as error:
            # The owner of this epoch is gone, unless somebody has taken over meanwhile.
            unreachable, trouble = owner.epoch, error
            time.sleep(_PAUSE_SECONDS * min(attempt, 10))
    raise OperatingFault(
        f"shard {request.shard} of {request.at} has no owner that answers, after {_ATTEMPTS} "
        f"attempts: {trouble}"
    ) from trouble


def _ask(address: Address, token: Token, header: dict[str, Any], tuples: _Tuples) -> ShardAnswer:
    connection = _connect(address, token)
    try:
        connection.send_header(header)
        _checked(connection.receive_header())
        connection.send_tuples(tuples)
        connection.send_header(tuples.behind())
        answer = _checked(connection.receive_header())
    except BaseException:
        connection.close()
        raise
    return ShardAnswer(answer["figures"], _results(connection, answer))


def _results(connection: ShardConnection, answer: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    try:
        if answer["schema"]:
            schema = pa.ipc.read_schema(pa.py_buffer(b64decode(answer["schema"])))
            yield from connection.receive_tuples(schema)
    finally:
        connection.close()


def _connect(address: Address, token: Token) -> ShardConnection:
    """A connection to a host; in a crowd of strangers it may take a few attempts to get in."""
    for attempt in range(_KNOCKS):
        try:
            return _try_to_connect(address, token)
        except HungUp:
            time.sleep(_KNOCK_SECONDS * attempt)
    return _try_to_connect(address, token)


def _try_to_connect(address: Address, token: Token) -> ShardConnection:
    peer = f"the shard host at {address[0]}:{address[1]}"
    try:
        connected = socket.create_connection(address, timeout=_CONNECT_SECONDS)
        leave_unpaced(connected, address[0])
    except OSError as error:
        raise Disconnected(f"{peer} cannot be reached ({error})") from error
    try:
        return ShardConnection(
            connected, peer, token, accepting=False, silence_seconds=_SILENCE_SECONDS
        )
    except BaseException:
        connected.close()
        raise


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, unless it is an error: that is raised as the host raised it."""
    if "error" not in answer:
        return answer
    name, message = str(answer["error"]), str(answer.get("message", ""))
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, RewakeError):
        raise kind(message)
    raise OperatingFault(f"the shard host failed: {name}: {message}")


# --- the host of this executor -------------------------------------------------------------------


def wake_host(
    at: str, listen: str, watched: Callable[[], Process] = nearest_jvm
) -> threading.Thread | None:
    """Begin to start this executor's host if the folder's shards have lost theirs; do not wait.

    For those who know that tasks will need it soon: its imports take as long as theirs.  What goes
    wrong here will go wrong there again, and be said.  In a copy, the host of the original may be
    taken for its own here: then the first task starts one.
    """
    folder = ShardFolder(at)
    if _running(folder.registration(watched())) is not None:
        return None
    owner = folder.owner(0)
    if owner.address is not None and host_answers(owner.address):
        return None

    def start() -> None:
        with suppress(Exception):
            host_address(folder, listen, watched())

    starting = threading.Thread(target=start, daemon=True)
    starting.start()
    return starting


def host_answers(address: Address) -> bool:
    """Whether anybody listens there."""
    try:
        socket.create_connection(address, timeout=_CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def host_address(folder: ShardFolder, listen: str, watched: Process) -> Address:
    """Where the shard host of an executor listens; it is started when there is none."""
    registration = folder.registration(watched)
    if (found := _running(registration)) is not None:
        return found
    make_private_folder(folder.hosts)
    put_right(folder.path)
    # Of all tasks of this executor, one starts it and the others wait here.
    with open(registration.with_suffix(".starting"), "w", opener=private_opener) as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        if (found := _running(registration)) is not None:
            return found
        return _start(folder, listen, watched, registration)


def _start(folder: ShardFolder, listen: str, watched: Process, registration: Path) -> Address:
    """Start it; again when it is killed while it starts, as by whoever is short of memory."""
    command = [sys.executable, "-m", "rewake.net.shards.host", str(folder.path), listen]
    log = registration.with_suffix(".log")
    deadline = time.monotonic() + _START_SECONDS
    for _ in range(_STARTS):
        with suppress(FileNotFoundError):
            registration.unlink()
        with open(log, "ab", opener=private_opener) as said:
            starting = subprocess.Popen(
                [*command, str(watched), IDLE_SECONDS],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env=_environment(),
                start_new_session=True,
            )
        while (found := _running(registration)) is None:
            if time.monotonic() > deadline or starting.poll() not in (None, 0):
                break
            time.sleep(0.005)
        else:
            starting.wait()
            return found
        if (starting.poll() or 0) >= 0:
            break  # it takes too long, or has said what is wrong
    ended = starting.returncode
    how = f"within {_START_SECONDS:g} s" if ended is None else f"(exit status {ended})"
    raise OperatingFault(
        f"the shard host of this executor did not start {how}; it said: "
        f"{log.read_text()[-2000:] or 'nothing'}"
    )


def _environment() -> dict[str, str]:
    """This process's environment without Spark's secret; the host imports from where this does."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON_WORKER_FACTORY")
    }
    return kept | {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}


def _running(registration: Path) -> Address | None:
    """The address in a registration whose host holds its lock; a copied lock is held by nobody."""
    try:
        with registration.with_suffix(".lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    except FileNotFoundError:
        return None
    else:
        return None  # nobody holds it
    try:
        host, port = json.loads(registration.read_bytes())["address"]
    except (FileNotFoundError, ValueError, KeyError):
        return None
    return str(host), int(port)


def stop_host(folder: ShardFolder, address: Address) -> None:
    """Tell a shard host to leave."""
    connection = _connect(address, folder.token())
    try:
        connection.send_header({"request": "stop", "at": folder.place})
        _checked(connection.receive_header())
    finally:
        connection.close()

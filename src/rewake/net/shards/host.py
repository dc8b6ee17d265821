"""A shard host: the process beside a Spark executor that holds its shards and writes their logs.

    python -m rewake.net.shards.host AT LISTEN WATCHED IDLE_SECONDS

Python workers come and go; the host stays, and with it the state of its shards.  The first task
that needs it starts it.  It detaches, takes the lock of its executor and folder (or leaves, when
another has it), says in `hosts/` where it listens, and serves: a thread for each connection, a
lock for each shard.

What always holds: there is one host for an executor and folder; nobody is served who does not know
the token, or asks for another folder, be it a copy; it ends by itself when the watched process is
gone, when it is told to, when nobody has asked for `IDLE_SECONDS`, or when its folder has been
removed or replaced.  Killed at any moment, it loses nothing: what it has answered is durable, and a
successor's claim fences it.

Heavy modules are imported, and a recovery is rehearsed, while tasks already connect and send.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from rewake.model import errors
from rewake.model.errors import BadPeer, Fenced, LogInUse, NotOwner, RewakeError, UsageError
from rewake.net.queries.ancestry import Process
from rewake.net.shards.folder import ShardFolder, holder_text
from rewake.net.shards.wire import Disconnected, ShardConnection, messages_of
from rewake.net.watcher import watcher
from rewake.net.wire.addresses import is_wildcard, leave_unpaced
from rewake.net.wire.doorway import Doorway
from rewake.node.messages import Address
from rewake.node.micro_batches.next_batch import BatchIdentity
from rewake.node.micro_batches.shard_batches import BatchRecord
from rewake.operators.row_digest import RowDigest
from rewake.stores.small_files import replace_file

if TYPE_CHECKING:
    from rewake.net.shards.state import Description, ShardState

__all__ = ["ShardHost", "main"]

_LOOK_SECONDS: Final = 0.1
_WORKING_SECONDS: Final = 2.0
_SILENCE_SECONDS: Final = 600.0
_MOST_STRANGERS: Final = 64
_RESULT_ROWS: Final = 100_000
# The fields of a request that say what computes.
_DESCRIBING: Final = ("operator", "schema", "order_by", "shards")


class _Slot:
    """A shard's place in the host: its lock, and its state while this host owns it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.state: ShardState | None = None
        # What requests said of the operator, and what was made of it.
        self.described: tuple[str, Description] | None = None


class ShardHost:
    """Serves the shards of one executor and folder."""

    def __init__(self, at: str, listen: str, *, idle_seconds: float) -> None:
        self.folder = ShardFolder(at)
        self._token = self.folder.token()
        self._opened = os.stat(self.folder.path)
        self._idle_seconds = idle_seconds
        self._socket = socket.create_server((listen, 0), backlog=256)
        leave_unpaced(self._socket, listen)
        port = self._socket.getsockname()[1]
        host = socket.gethostname() if is_wildcard(listen) else listen
        self.address: Address = (host, port)
        self.stopping = threading.Event()
        self._slots: dict[int, _Slot] = {}
        self._guard = threading.Lock()
        # Those who are authenticating, each with a thread that ends soon when it is dropped.
        self._strangers: set[socket.socket] = set()
        self._doorway: Doorway[socket.socket] = Doorway(
            _MOST_STRANGERS, self._strangers.__contains__, secrets.randbelow
        )
        self._places = threading.Semaphore(_MOST_STRANGERS)
        self._busy = 0
        self._asked = time.monotonic()
        self._rates: Any = None

    # --- living and leaving ------------------------------------------------------------------

    def start(self) -> None:
        """Accept connections from now on."""
        watcher(self._accept, "what lets tasks in", self._died, name="accept").start()

    def _died(self, error: str) -> None:
        """Nobody can connect any more: leave, so that the next task starts another host."""
        _say(error)
        self.stopping.set()

    @property
    def idle(self) -> bool:
        """Whether nobody has asked for long."""
        with self._guard:
            return not self._busy and time.monotonic() - self._asked > self._idle_seconds

    def serves(self, place: str) -> bool:
        """Whether a path leads to the folder that was opened; so must the path of this host.

        Both are looked up here, because device numbers differ from machine to machine.
        """
        try:
            found = [os.stat(each) for each in (self.folder.path, place)]
        except OSError:
            return False
        return all(os.path.samestat(each, self._opened) for each in found)

    def close(self) -> None:
        """Serve nobody any more, and give the logs back."""
        self.stopping.set()
        self._socket.close()
        with self._guard:
            slots = list(self._slots.values())
        for slot in slots:
            # One that is at work holds its lock; its log is as durable as it is.
            if slot.lock.acquire(timeout=1.0) and slot.state is not None:
                slot.state.close()

    # --- connections -------------------------------------------------------------------------

    def _accept(self) -> None:
        while not self.stopping.is_set():
            try:
                connected, address = self._socket.accept()
            except OSError:
                if self.stopping.wait(_LOOK_SECONDS):
                    return
                continue
            self._make_room()
            with self._guard:
                self._strangers.add(connected)
                self._doorway.admit(connected)
            peer = f"{address[0]}:{address[1]}"
            serving = threading.Thread(target=self._serve, args=(connected, peer), daemon=True)
            serving.start()

    def _make_room(self) -> None:
        """Take a place among the strangers; one of them is dropped for it when there is none."""
        if self._places.acquire(blocking=False):
            return
        with self._guard:
            dropped = self._doorway.drop()
            if dropped is not None:
                with suppress(OSError):
                    dropped.shutdown(socket.SHUT_RDWR)
        self._places.acquire()

    def _serve(self, connected: socket.socket, peer: str) -> None:
        with connected:
            try:
                connection = ShardConnection(
                    connected, peer, self._token, accepting=True, silence_seconds=_SILENCE_SECONDS
                )
            except BadPeer as error:
                _say(str(error))
                return
            except Disconnected:
                return  # as floods and those do who look whether somebody listens
            finally:
                with self._guard:
                    self._strangers.discard(connected)
                self._places.release()
            with suppress(Disconnected):
                self._answer_all(connection)

    def _answer_all(self, connection: ShardConnection) -> None:
        while not self.stopping.is_set():
            header = connection.receive_header()
            with self._guard:
                self._busy += 1
            try:
                self._answer(connection, header)
            finally:
                with self._guard:
                    self._busy -= 1
                    self._asked = time.monotonic()

    def _answer(self, connection: ShardConnection, header: dict[str, Any]) -> None:
        try:
            self._check_folder(str(header.get("at")))
            if header.get("request") == "batch":
                self._batch(connection, header)
            elif header.get("request") == "stop":
                connection.send_header({"ok": True})
                self.stopping.set()
            else:
                raise UsageError(f"a shard host knows no request {header.get('request')!r}")
        except Disconnected:
            raise
        except Exception as error:  # whatever it is, the task must be told
            if not isinstance(error, RewakeError):
                _say(f"{type(error).__name__}: {error}")
            connection.send_header({"error": _known_name(error), "message": str(error)})

    def _check_folder(self, place: str) -> None:
        """Raise when the request is for another folder: a copy has this one's token and claims."""
        if not self.serves(place):
            raise NotOwner(
                f"this host ({holder_text(self.address)}) serves {self.folder.place}, not {place}; "
                "a copy has hosts of its own"
            )

    # --- batches -----------------------------------------------------------------------------

    def _batch(self, connection: ShardConnection, header: dict[str, Any]) -> None:
        shard = int(header["shard"])
        self._check_owner(shard, header)
        # The tuples are on their way while modules are imported and the shard is rebuilt.
        connection.send_header({"go": True})
        schema = pa.ipc.read_schema(pa.py_buffer(b64decode(header["schema"])))
        batches = list(connection.receive_tuples(schema))
        request = _record(header, connection.receive_header())
        working = _Working(connection)
        try:
            results, figures = self._results(header, schema, request, batches, shard)
        finally:
            working.stop()
        answer = {"ok": True, "figures": figures, "schema": ""}
        if results:
            answer["schema"] = b64encode(results[0].schema.serialize().to_pybytes()).decode()
        connection.send_header(answer)
        connection.send_tuples(_messages(results))

    def _check_owner(self, shard: int, header: dict[str, Any]) -> None:
        """Raise when the shard is neither owned nor to be taken, before its tuples are sent."""
        slot = self._slots.get(shard)
        if header.get("take") is None and (slot is None or slot.state is None):
            raise NotOwner(f"this host ({holder_text(self.address)}) does not own shard {shard}")

    def _results(
        self,
        header: dict[str, Any],
        schema: pa.Schema,
        request: BatchRecord,
        batches: list[pa.RecordBatch],
        shard: int,
    ) -> tuple[list[pa.RecordBatch], dict[str, Any]]:
        with self._guard:
            slot = self._slots.setdefault(shard, _Slot())
        with slot.lock:
            description = self._description(slot, header, schema)
            state = slot.state or self._take(slot, shard, header, description)
            state.description = description
            try:
                results = state.process(
                    request, batches, str(header["gaps"]), header.get("recover_within_ms")
                )
                return results, state.figures() | {"shard": shard}
            except Fenced as error:
                raise NotOwner(str(error)) from error
            finally:
                if state.broken:
                    slot.state = None
                    state.close()

    def _description(self, slot: _Slot, header: dict[str, Any], schema: pa.Schema) -> Description:
        """What the request computes; raises when the folder has another operator's state."""
        said = json.dumps([header[name] for name in _DESCRIBING])
        if slot.described is None or slot.described[0] != said:
            states = import_module("rewake.net.shards.state")
            operator, order_by, shards = header["operator"], header["order_by"], header["shards"]
            description = states.Description(operator, schema, order_by, shards)
            self.folder.publish_operator(description.identity)
            slot.described = (said, description)
        return slot.described[1]

    def _take(
        self, slot: _Slot, shard: int, header: dict[str, Any], description: Description
    ) -> ShardState:
        """Claim a shard above the owner that the task could not reach, and rebuild it."""
        above = header.get("take")
        if above is None:
            raise NotOwner(f"shard {shard} was lost meanwhile; ask again")
        states = import_module("rewake.net.shards.state")
        if self._rates is None:
            self._rates = import_module("rewake.recovery.promises.rates").RecoveryRates()
        holder = holder_text(self.address)
        try:
            slot.state = states.ShardState(
                self.folder, shard, description, int(above) + 1, holder, self._rates
            )
        except (Fenced, LogInUse) as error:
            raise NotOwner(str(error)) from error
        assert slot.state is not None
        return slot.state


class _Working:
    """Tells the peer now and then that its answer is being worked on."""

    def __init__(self, connection: ShardConnection) -> None:
        self._connection = connection
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with suppress(Disconnected):
            while not self._done.wait(_WORKING_SECONDS):
                self._connection.send_working()

    def stop(self) -> None:
        """Say nothing any more."""
        self._done.set()
        self._thread.join()


def _record(header: dict[str, Any], behind: dict[str, Any]) -> BatchRecord:
    """The batch that a request is for: what it says before its tuples, and behind them."""
    identity = BatchIdentity(bytes.fromhex(header["query"]), int(header["batch"]))
    rows = RowDigest.decode(bytes.fromhex(behind["rows"]))
    return BatchRecord(identity, bytes.fromhex(header["run"]), rows)


def _messages(batches: list[pa.RecordBatch]) -> Iterator[pa.Buffer]:
    for batch in batches:
        for start in range(0, batch.num_rows, _RESULT_ROWS):
            yield from messages_of(batch.slice(start, _RESULT_ROWS))


def _known_name(error: Exception) -> str:
    """What the other side knows an error by: the nearest of its classes that all programs have."""
    kinds = [each for each in type(error).__mro__ if each.__module__ == errors.__name__]
    return kinds[0].__name__ if kinds else type(error).__name__


def _say(text: str) -> None:
    sys.stderr.write(f"rewake shard host {os.getpid()}: {text}\n")
    sys.stderr.flush()


# --- the process ---------------------------------------------------------------------------------


def main(arguments: list[str]) -> None:
    """Detach, and serve until there is a reason to leave."""
    if len(arguments) != 4:
        raise SystemExit("usage: python -m rewake.net.shards.host AT LISTEN WATCHED IDLE_SECONDS")
    at, listen, watched = arguments[0], arguments[1], Process.from_text(arguments[2])
    idle_seconds = float(arguments[3])
    if os.fork():
        # The task waits for this one, and never has to bury the host.
        os._exit(0)
    os.setsid()
    folder = ShardFolder(at)
    registration = folder.registration(watched)
    lock = os.open(registration.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # another task was quicker
    try:
        _serve_while_wanted(at, listen, watched, idle_seconds, registration)
    except RewakeError as error:
        _say(str(error))


def _serve_while_wanted(
    at: str, listen: str, watched: Process, idle_seconds: float, registration: Path
) -> None:
    host = ShardHost(at, listen, idle_seconds=idle_seconds)
    host.start()
    _sweep(registration.parent)
    said = json.dumps({"address": list(host.address), "pid": os.getpid()})
    replace_file(registration, said.encode(), durable=False)
    threading.Thread(target=_prepare, args=(host.folder,), daemon=True).start()
    while not host.stopping.wait(_LOOK_SECONDS):
        here = host.serves(host.folder.place)
        if not watched.alive or host.idle or not here or not registration.exists():
            break
    # In another folder it would be that of another host.
    if host.serves(host.folder.place):
        with suppress(FileNotFoundError):
            registration.unlink()
    host.close()
    # Threads that wait for peers must not keep it.
    os._exit(0)


def _sweep(hosts: Path) -> None:
    """Remove what hosts of this machine have left whose executors are gone, but not what they said.

    Nobody will use these names again: a start time is part of them.
    """
    prefix = f"{socket.gethostname()}-"
    for path in hosts.glob(f"{prefix}*"):
        with suppress(OSError, ValueError):
            watched = Process.from_text(path.stem.removeprefix(prefix))
            if not watched.alive and (path.suffix != ".log" or path.stat().st_size == 0):
                path.unlink()


def _prepare(folder: ShardFolder) -> None:
    with suppress(Exception):  # whoever needs it will see the error
        import_module("rewake.net.shards.state").rehearse(folder)


if __name__ == "__main__":
    main(sys.argv[1:])

"""The folder `at` of an operator inside Spark's micro-batches: who it is, and where its shards are.

    operator.json          what computes, over which columns, in how many shards; its own id
    token                  the secret of its hosts and tasks; only its owner can read it
    shard-0000/            the log of the first shard, and so on; each says its place
    told                   the newest batch without input of which all shards have been told
    hosts/<who>.json       where the shard host of an executor listens
    hosts/<who>.lock       held by that host as long as it lives
    hosts/<who>.log        what it had to say

The owner of a shard is the holder of its log's claim (see `log.files.claims`): the claim's text
is the address at which it answers.  There is no second record of who owns what.

What always holds: `operator.json`, which is sealed (`log.files.sealed`), and `token` appear whole,
and the first to write them wins; a folder with another operator's state is refused and not changed.
The folder's id is drawn once, so a log is told from those of every other folder.

A copy of the folder has the same id, token and claims: it is the same history.  That it is another
place, which the hosts that its claims name do not serve, they say themselves.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from rewake.log.files.claims import current_claim
from rewake.log.files.layout import DESCRIPTOR
from rewake.log.files.sealed import sealed, unsealed
from rewake.model.errors import (
    DamagedData,
    DamagedLog,
    NotALog,
    OtherOperator,
    StorageFault,
    UsageError,
)
from rewake.net.queries.ancestry import Process
from rewake.net.wire.authentication import TOKEN_BYTES, Token
from rewake.node.messages import Address
from rewake.stores.local import LOCK_NAME, LocalStore
from rewake.stores.places import local_path, refuse_foreign
from rewake.stores.private import make_private_folder
from rewake.stores.small_files import create_file, replace_file

__all__ = ["Owner", "ShardFolder", "holder_text", "new_identity"]

_FORMAT: Final = 2
# What may be here when `operator.json` is not; another process may just have made it.
_BEFORE_OPERATOR: Final = frozenset({"operator.json", "token", "told", LOCK_NAME})
_HOLDER: Final = re.compile(r"shard host (\S+) (\d+) on (\S+) \(pid \d+\)\Z")


class Owner(NamedTuple):
    """Who claimed a shard last; `address` is None when nobody did who can be asked."""

    epoch: int
    address: Address | None


def holder_text(address: Address) -> str:
    """How a shard host signs its claims."""
    return f"shard host {address[0]} {address[1]} on {socket.gethostname()} (pid {os.getpid()})"


class ShardFolder:
    """Paths and small files of one `at`."""

    def __init__(self, at: str) -> None:
        self.path = local_path(at)

    @property
    def place(self) -> str:
        """How requests name this folder: by a path that all machines of the query see."""
        return os.path.abspath(self.path)

    def shard(self, number: int) -> Path:
        """The folder of a shard's log."""
        return self.path / f"shard-{number:04d}"

    @property
    def hosts(self) -> Path:
        """Where hosts say how to reach them."""
        return self.path / "hosts"

    def registration(self, watched: Process) -> Path:
        """The file in which the host of an executor says where it listens."""
        return self.hosts / f"{socket.gethostname()}-{watched}.json"

    # --- who owns a shard --------------------------------------------------------------------

    def owner(self, number: int) -> Owner:
        """The holder of the newest claim to a shard's log; epoch -1 when there is none."""
        try:
            store = LocalStore(self.shard(number))
        except NotALog:
            return Owner(-1, None)
        with closing(store):
            epoch, holder = current_claim(store)
        return Owner(epoch, _address(holder))

    # --- batches without input ---------------------------------------------------------------

    def told(self) -> str:
        """The batch without input that all shards have been told of last."""
        with suppress(FileNotFoundError):
            return (self.path / "told").read_text()
        return ""

    def tell(self, batch: str) -> None:
        """All shards have been told of a batch without input.

        It only saves others the trouble, so it need not be durable.
        """
        try:
            replace_file(self.path / "told", batch.encode(), durable=False)
        except OSError as error:
            raise StorageFault(f"cannot write {self.path / 'told'}: {error}") from error

    # --- what computes -----------------------------------------------------------------------

    def operator(self) -> dict[str, Any] | None:
        """What `operator.json` says, or None."""
        path = self.path / "operator.json"
        try:
            stored = unsealed(path.read_bytes(), str(path), "restore it")
        except FileNotFoundError:
            return None
        except DamagedData as error:
            raise DamagedLog(str(error)) from error
        if stored.get("format") != _FORMAT:
            raise UsageError(f"{path} is of another version of Rewake; use the one that made it")
        return stored

    def check_operator(self, wanted: Mapping[str, Any]) -> bool:
        """Whether this operator's state is here; raises when it is that of another."""
        stored = self.operator()
        if stored is None:
            self._refuse_foreign()
            return False
        for name in ("operator", "columns", "shards"):
            if stored.get(name) != wanted[name]:
                raise self._other(name, stored.get(name), wanted[name])
        return True

    def _refuse_foreign(self) -> None:
        if (self.path / DESCRIPTOR).exists() or (self.path / "stream.json").exists():
            raise OtherOperator(
                f"{self.path} holds a stream or another log, not the state of an operator inside "
                "Structured Streaming; give `at` a folder of its own"
            )
        refuse_foreign(self.path, _BEFORE_OPERATOR, "the state of an operator")

    def _other(self, what: str, stored: Any, wanted: Any) -> OtherOperator:
        hint = {
            "operator": "another computation",
            "columns": "other input columns",
            "shards": "another number of shards",
        }[what]
        way_out = (
            "use it as it was made, or divide it anew with `rewake migrate`"
            if what == "shards"
            else "use it as it was made; or, for the new one, give a new `at` and a new "
            "checkpointLocation and read the source again from its beginning"
        )
        return OtherOperator(
            f"{self.path} holds the state of {hint}: its {what} is {json.dumps(stored)}, not "
            f"{json.dumps(wanted)}. Nothing was changed: {way_out}"
        )

    def identity(self) -> str:
        """The id of this folder, which its logs name."""
        stored = self.operator()
        if stored is None or not isinstance(stored.get("id"), str):
            raise DamagedLog(f"{self.path} does not say which folder it is: restore operator.json")
        return str(stored["id"])

    def publish_operator(self, wanted: Mapping[str, Any], identity: str | None = None) -> None:
        """Say what computes here, unless it is said already; raises when it is another.

        The folder's `identity` is drawn, unless it is given because logs have it already.
        """
        if not self.check_operator(wanted):
            described = {"format": _FORMAT, "id": identity or new_identity(), **wanted}
            self._create("operator.json", sealed(described))
            self.check_operator(wanted)

    # --- the token ---------------------------------------------------------------------------

    def token(self) -> Token:
        """The token, drawn by whoever asks first."""
        path = self.path / "token"
        with suppress(FileNotFoundError):
            return Token.from_text(path.read_text())
        fresh = Token(secrets.token_bytes(TOKEN_BYTES))
        self._create("token", fresh.reveal().encode())
        return Token.from_text(path.read_text())

    def _create(self, name: str, data: bytes) -> None:
        """Make a file appear whole and durable, unless there is one already."""
        try:
            make_private_folder(self.path)
            create_file(self.path / name, data)
        except OSError as error:
            raise StorageFault(f"cannot write {self.path / name}: {error}") from error


def new_identity() -> str:
    """The id of a new folder."""
    return secrets.token_hex(16)


def _address(holder: str) -> Address | None:
    """Where the holder of a claim answers, if it does so towards this machine."""
    found = _HOLDER.match(holder)
    if found is None:
        return None
    host, port, machine = found[1], int(found[2]), found[3]
    elsewhere = machine != socket.gethostname() and host.startswith(("127.", "localhost", "::1"))
    return None if elsewhere else (host, port)

"""Where peers connect to: one listening socket, and few strangers at a time.

What always holds: it listens on loopback unless `allow_remote` was said; at most `strangers` of its
connections are unauthenticated (`wire.doorway`); accepting never raises because of a peer,
nor when the process has no file descriptor left.
"""

from __future__ import annotations

import errno
import socket
from secrets import randbelow
from typing import Final

from rewake.model.errors import OperatingFault, UsageError
from rewake.net.wire.addresses import LOOPBACK, is_loopback
from rewake.net.wire.authentication import Token
from rewake.net.wire.codec import AUTHENTICATED, Limits
from rewake.net.wire.connection import AUTHENTICATION_SECONDS, Connection, prepare
from rewake.net.wire.doorway import PLACES, Doorway
from rewake.node.messages import Address

__all__ = ["CannotListen", "Listener", "PortTaken", "address_towards"]

# As long as the system allows: a queue that overflows makes peers wait for a second.
_BACKLOG: Final = 4096
# Few milliseconds: then those inside are served, and strangers who have answered.
_ACCEPTED_PER_EVENT: Final = 32
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class PortTaken(UsageError):
    """Another program listens on the port that was asked for."""


class CannotListen(OperatingFault):
    """The system does not let this program listen at an address."""


class Listener:
    """A listening socket; `address` is where peers reach it."""

    def __init__(
        self,
        token: Token,
        host: str = LOOPBACK,
        port: int = 0,
        *,
        allow_remote: bool = False,
        strangers: int = PLACES,
        limits: Limits = AUTHENTICATED,
    ) -> None:
        if not allow_remote and not is_loopback(host):
            raise UsageError(
                f"listening at {host} would let other machines connect; say allow_remote=True if "
                f"they should, or listen at {LOOPBACK}"
            )
        self._token = token
        self._clients = token.for_clients()
        self._limits = limits
        self._doorway = Doorway(strangers, _is_stranger, randbelow)
        self._socket = _listening(host, port)
        self.address: Address = self._socket.getsockname()[:2]
        # Whether the last `accept` found no descriptor for a connection that waits.
        self.exhausted = False

    def fileno(self) -> int:
        """The number of the socket."""
        return self._socket.fileno()

    @property
    def strangers(self) -> int:
        """How many connections are open and not authenticated."""
        return len(self._doorway)

    @property
    def dropped(self) -> int:
        """How many strangers had to make room so far."""
        return self._doorway.dropped

    def accept(self, now: float) -> list[Connection]:
        """Connections that have arrived; more may wait."""
        accepted: list[Connection] = []
        self.exhausted = False
        for _ in range(_ACCEPTED_PER_EVENT):
            try:
                fresh, address = self._socket.accept()
            except OSError as error:
                if error.errno in _NO_DESCRIPTOR:
                    self.exhausted = not self._drop_one()
                    if not self.exhausted:
                        continue
                break  # nobody waits, or the one who waited has gone
            fresh.setblocking(False)  # the rest it has from the socket that listens
            accepted.append(self._admit(fresh, f"{address[0]}:{address[1]}", now))
        return [connection for connection in accepted if not connection.closed]

    def _admit(self, fresh: socket.socket, peer: str, now: float) -> Connection:
        deadline = now + AUTHENTICATION_SECONDS
        connection = Connection(
            fresh, peer, self._token, deadline,
            accepting=True, limits=self._limits, clients=self._clients,
        )  # fmt: skip
        dropped = self._doorway.admit(connection)
        if dropped is not None:
            dropped.close()
        connection.on_writable()  # the challenge
        return connection

    def _drop_one(self) -> bool:
        dropped = self._doorway.drop()
        if dropped is None:
            return False
        dropped.close()
        return True

    def close(self) -> None:
        """Listen no more; strangers are dropped, accepted connections live on."""
        while self._drop_one():
            pass
        self._socket.close()


def _is_stranger(connection: Connection) -> bool:
    return not connection.closed and not connection.authenticated


def address_towards(peer: Address) -> str:
    """The address of this machine that `peer`, and whoever is where it is, can connect to.

    Nothing is sent: the system only says from where it would send.
    """
    family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(peer)
        except (OSError, OverflowError) as error:
            raise CannotListen(f"there is no way from here to {peer[0]}: {error}") from error
        return str(asking.getsockname()[0])


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    fresh = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A port whose last connections are still being buried is free.
        fresh.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Before listening: what is accepted inherits the size, and with it the window's scale.
        prepare(fresh, host)
        fresh.bind((host, port))
        fresh.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        fresh.close()
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise PortTaken(
                f"port {port} of {host} is taken by another program; stop that one, choose another "
                "port, or give port 0 to get a free one"
            ) from error
        raise CannotListen(f"cannot listen at {host}:{port}: {error}") from error
    return fresh

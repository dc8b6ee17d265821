"""Where peers connect to: one listening socket, and few strangers at a time.

What always holds: it listens on loopback unless `allow_remote` was said; at most `strangers` of its
connections are unauthenticated, the oldest is dropped for a new one; accepting never raises because
of a peer, nor when the process has no file descriptor left.
"""

from __future__ import annotations

import errno
import socket
from typing import Final

from rewake.model.errors import OperatingFault, UsageError
from rewake.net.addresses import LOOPBACK, is_loopback
from rewake.net.authentication import Token
from rewake.net.connection import AUTHENTICATION_SECONDS, Connection, prepare
from rewake.net.wire import AUTHENTICATED, Limits
from rewake.node.messages import Address

__all__ = ["CannotListen", "Listener", "PortTaken", "address_towards"]

_BACKLOG: Final = 1024
_ACCEPTED_PER_EVENT: Final = 64
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
        strangers: int = 64,
        limits: Limits = AUTHENTICATED,
    ) -> None:
        if not allow_remote and not is_loopback(host):
            raise UsageError(
                f"listening at {host} would let other machines connect; say allow_remote=True if "
                f"they should, or listen at {LOOPBACK}"
            )
        self._token = token
        self._strangers_limit = strangers
        self._limits = limits
        self._strangers: list[Connection] = []
        self._socket = _listening(host, port)
        self.address: Address = self._socket.getsockname()[:2]
        self.dropped = 0
        # Whether the last `accept` found no descriptor for a connection that waits.
        self.exhausted = False

    def fileno(self) -> int:
        """The number of the socket."""
        return self._socket.fileno()

    @property
    def strangers(self) -> int:
        """How many connections are open and not authenticated."""
        self._forget_known()
        return len(self._strangers)

    def accept(self, now: float) -> list[Connection]:
        """Connections that have arrived; more may wait."""
        accepted: list[Connection] = []
        self.exhausted = False
        for _ in range(_ACCEPTED_PER_EVENT):
            try:
                fresh, address = self._socket.accept()
            except OSError as error:
                if error.errno in _NO_DESCRIPTOR:
                    self.exhausted = not self._drop_oldest()
                    if not self.exhausted:
                        continue
                break  # nobody waits, or the one who waited has gone
            prepare(fresh, address[0])
            accepted.append(self._admit(fresh, f"{address[0]}:{address[1]}", now))
        return [connection for connection in accepted if not connection.closed]

    def _admit(self, fresh: socket.socket, peer: str, now: float) -> Connection:
        self._forget_known()
        while len(self._strangers) >= self._strangers_limit:
            self._drop_oldest()
        deadline = now + AUTHENTICATION_SECONDS
        connection = Connection(
            fresh, peer, self._token, deadline, accepting=True, limits=self._limits
        )
        self._strangers.append(connection)
        connection.on_writable()  # the challenge
        return connection

    def _forget_known(self) -> None:
        self._strangers = [
            each for each in self._strangers if not each.closed and not each.authenticated
        ]

    def _drop_oldest(self) -> bool:
        self._forget_known()
        if not self._strangers:
            return False
        self._strangers.pop(0).close()
        self.dropped += 1
        return True

    def close(self) -> None:
        """Listen no more; strangers are dropped, accepted connections live on."""
        while self._drop_oldest():
            pass
        self._socket.close()


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

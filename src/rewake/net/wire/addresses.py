"""What an address says of who can be reached there, and what a socket owes to that."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress
from typing import Final

__all__ = ["LOOPBACK", "is_loopback", "is_wildcard", "leave_unpaced"]

LOOPBACK: Final = "127.0.0.1"
# The one that every system has and allows to everybody.
_UNPACED: Final = b"reno"


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """Whether `host` is every address of a machine at once, which nobody can connect to."""
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def leave_unpaced(connected: socket.socket, host: str) -> None:
    """Let bytes to this machine go when they are there; towards others the system's choice stays.

    A system that is set to BBR paces what it sends, by timers, to what it believes that the network
    can carry.  Within one machine there is no network, and what looks like its delay is the time
    for which the receiver waits for a processor.  What a listening socket is told, those that it
    accepts have, too.
    """
    if is_loopback(host) and hasattr(socket, "TCP_CONGESTION"):
        with suppress(OSError):  # no TCP, as in some tests, or a system that has another one alone
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _UNPACED)

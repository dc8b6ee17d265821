"""The process at the other end of a connection, as this machine's kernel knows it.

A message may name any number as its sender's pid.  So before a process is signalled, the kernel is
asked whether it holds the other end of the very connection on which it said so, now.  That proves
more than a start time would: the process is the one that knew the token.

What always holds: a process that does not hold the other end gets no signal, whatever a peer says,
also when a number is used again; nor does any process of another machine.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from struct import unpack

from rewake.net.wire.connection import Connection
from rewake.node.messages import Address

__all__ = ["signal_peer"]


def signal_peer(connection: Connection, pid: int, sign: signal.Signals) -> bool:
    """Send a signal to the process `pid` if it is at the other end; whether it was sent."""
    ends = connection.ends
    if ends is None or pid <= 0:
        return False
    mine, theirs = ends
    with suppress(OSError):  # it is gone, or not ours to look at
        # A handle, not a number: what is looked at is what is signalled.
        handle = os.pidfd_open(pid)
        try:
            if _holds(pid, _inode(theirs, mine)):
                signal.pidfd_send_signal(handle, sign)
                return True
        finally:
            os.close(handle)
    return False


def _holds(pid: int, inode: str | None) -> bool:
    """Whether a process has a socket open."""
    if inode is None:
        return False
    wanted = f"socket:[{inode}]"
    for name in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            if os.readlink(f"/proc/{pid}/fd/{name}") == wanted:
                return True
    return False


def _inode(local: Address, remote: Address) -> str | None:
    """The number of this machine's socket between two addresses; None when it has none."""
    table = "/proc/net/tcp6" if ":" in local[0] else "/proc/net/tcp"
    wanted = f" {_hexadecimal(local)} {_hexadecimal(remote)} "
    with open(table) as sockets:
        for line in sockets:
            if wanted in line:
                return line.split()[9]
    return None


def _hexadecimal(address: Address) -> str:
    """As the kernel writes it: words of four bytes in the machine's order, then the port."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    packed = socket.inet_pton(family, address[0])
    words = unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"

"""A program that floods a port: connects, says nothing or one byte, and holds what it can.

    python flood_child.py HOST PORT HELD SAID

It says so when it is at it, and ends when its input does, or after five minutes, or after millions
of connections: whatever is first.  Every connection is reset at its end, so that no port is left to
be buried.
"""

import select
import socket
import struct
import sys
import time
from collections import deque
from contextlib import suppress

SECONDS = 300.0
CONNECTIONS = 5_000_000
# In a hundredth of a second: two such programs make 9,200 connections a second.
AT_ONCE = 46
WARMED_UP = 1_000
BY_RESET = struct.pack("ii", 1, 0)


def main(host: str, port: int, held: int, said: bytes) -> None:
    """Flood."""
    open_ones: deque[socket.socket] = deque()
    end = time.monotonic() + SECONDS
    for number in range(CONNECTIONS):
        if number % AT_ONCE == 0 and (
            time.monotonic() > end or select.select([sys.stdin], [], [], 0.01)[0]
        ):
            return
        if number == WARMED_UP:
            sys.stdout.write("flooding\n")
            sys.stdout.flush()
        fresh = socket.socket()
        fresh.setblocking(False)
        fresh.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, BY_RESET)
        with suppress(OSError):
            fresh.connect_ex((host, port))
            fresh.send(said)
        open_ones.append(fresh)
        if len(open_ones) > held:
            open_ones.popleft().close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].encode())

"""Calls to a database that may go away: made in a thread of their own, again until they succeed.

A node does everything in one thread, its heartbeats too.  So a call is waited for only for a
moment; if it has not been answered then, the waiting raises `Unavailable`, and goes on when it is
asked for again.  Meanwhile the thread tries again, after pauses that grow, with a new connection
each time.  After `give_up_seconds` without success the call fails with `GaveUp`.

What always holds: calls are made one after the other, by one thread, with one connection at a time.
A call may be made several times, also after it has succeeded without our hearing of it: it must be
such that making it again changes nothing.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Final, Generic, Protocol, TypeVar

from rewake.model.errors import GaveUp, Unavailable

__all__ = ["WAIT_SECONDS", "Call", "Caller", "Closable"]

# So long a node can be without its heartbeats.
WAIT_SECONDS: Final = 0.1
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 2.0
_CLOSE_SECONDS: Final = 2.0


class Closable(Protocol):
    """A connection: whatever calls need, and a way to be rid of it."""

    def close(self) -> None:
        """Release it, whatever state it is in; what is not committed is undone."""


Session = TypeVar("Session", bound=Closable)
Answer = TypeVar("Answer")


class Call(Future[Answer]):
    """A call under way."""

    def __init__(
        self, work: Callable[[Any], Answer], database: str, give_up_seconds: float
    ) -> None:
        super().__init__()
        self.work = work
        self.started = time.monotonic()
        self._give_up_seconds = give_up_seconds
        # What the database has last said, or that it has said nothing.
        self.trouble = f"{database} has not answered yet"
        # Whether it has said that it cannot now, rather than nothing.
        self.refused = False

    @property
    def overdue(self) -> bool:
        """Whether it has taken longer than anybody wants to wait."""
        return time.monotonic() - self.started > self._give_up_seconds

    def give_up(self) -> GaveUp:
        """The error that says for how long it was tried, and what came of it."""
        return GaveUp(
            f"{self.trouble}; given up after {self._give_up_seconds:g} s: see to the database and "
            "start the query again, which goes on where it was, or let give_up_after be longer"
        )

    def result(self, timeout: float | None = WAIT_SECONDS) -> Answer:
        """The answer, if it comes within this time; otherwise `Unavailable`: ask again."""
        if wait([self], timeout).done:
            return super().result()
        if self.overdue:
            raise self.give_up()
        waited = time.monotonic() - self.started
        raise Unavailable(
            f"{self.trouble}; trying again for {waited:.1f} s now",
            self._give_up_seconds,
            self.give_up(),
        )


class Caller(Generic[Session]):
    """Makes calls with connections that `connect` gives; `database` is its name in messages."""

    def __init__(
        self, connect: Callable[[], Session], database: str, give_up_seconds: float
    ) -> None:
        self._database = database
        self._give_up_seconds = give_up_seconds
        self._calls: queue.SimpleQueue[Call[Any] | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        # The thread knows nothing of this object, so that it ends when nobody has it any more.
        self._thread = threading.Thread(
            target=_serve,
            args=(connect, self._calls, self._closing),
            name="rewake-database",
            daemon=True,
        )
        self._thread.start()
        self._end = weakref.finalize(self, _end, self._calls, self._closing)

    def start(self, work: Callable[[Session], Answer]) -> Call[Answer]:
        """Have a call made; `result` of what this returns is its answer."""
        call = Call(work, self._database, self._give_up_seconds)
        self._calls.put(call)
        return call

    def close(self) -> None:
        """Close the connection, unless a call is stuck: that one closes it in the end."""
        self._end()
        self._thread.join(_CLOSE_SECONDS)


def _end(calls: queue.SimpleQueue[Call[Any] | None], closing: threading.Event) -> None:
    closing.set()
    calls.put(None)


def _serve(
    connect: Callable[[], Session],
    calls: queue.SimpleQueue[Call[Any] | None],
    closing: threading.Event,
) -> None:
    session: Session | None = None
    while (call := calls.get()) is not None:
        session = _make(call, connect, session, closing)
    if session is not None:
        with suppress(Exception):  # of a connection that is given up: its thread goes on
            session.close()


def _make(
    call: Call[Any],
    connect: Callable[[], Session],
    session: Session | None,
    closing: threading.Event,
) -> Session | None:
    """Make a call until it succeeds or cannot; the connection to go on with, if there is one."""
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            if session is None:
                session = connect()
            answer = call.work(session)
        except Unavailable as error:
            call.trouble, call.refused = str(error), True
            _close(session)
            session = None
            closing.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            # Not made again behind the back of whoever has been told that it failed.
            if call.overdue or closing.is_set():
                call.set_exception(call.give_up())
                return None
        except BaseException as error:
            _close(session)
            call.set_exception(error)
            return None
        else:
            call.set_result(answer)
            return session


def _close(session: Session | None) -> None:
    if session is not None:
        with suppress(Exception):  # of a connection that is given up: its thread goes on
            session.close()

"""One thread that serves listeners, connections, wakeups and timers.

The owner calls `run_once` again and again; everything that happens is a call of a handler, from
that thread.  Only `Wakeup.set` may be called by other threads.

What always holds: a handler's `closed` is called exactly once for a connection that ended by
itself (also when `authenticated` never was), with nothing after it, and never for one that its
owner closed; timers fire in the order of their times and never early; a timer that was cancelled
does not fire.
"""

from __future__ import annotations

import heapq
import os
import selectors
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Protocol

from rewake.model.errors import NotAllowed
from rewake.net.wire.codec import Message
from rewake.net.wire.connection import Connection
from rewake.net.wire.listener import Listener

__all__ = ["Handler", "Loop", "Timer", "Wakeup"]

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_LONGEST_WAIT_SECONDS = 60.0
# How long a listener rests that cannot accept because the process has no descriptor left.
_REST_SECONDS = 0.1


class Handler(Protocol):
    """Who is told what happens on a connection."""

    def authenticated(self, connection: Connection) -> None:
        """The peer belongs to the query."""

    def received(self, connection: Connection, messages: list[Message]) -> None:
        """Messages in the order in which they were sent; never none."""

    def closed(self, connection: Connection) -> None:
        """It ended by itself: `connection.ended` says why."""


class Timer:
    """A call at a time; `cancel` it if it is not wanted any more."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Callable[[], None]) -> None:
        self.when = when
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Do not call.  Harmless when it has been called."""
        self.call = None


class Wakeup:
    """Lets another thread have `call` called in the loop's thread, soon, once for many `set`s."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._number = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._call = call
        # A late `set` must not write to whatever has got the number after `close`.
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """The number of the event descriptor; -1 when closed."""
        return self._number

    def set(self) -> None:
        """Wake the loop; from any thread, never blocks, harmless after `close`."""
        # A counter that is full has woken the loop already.
        with self._lock, suppress(BlockingIOError):
            if self._number >= 0:
                os.eventfd_write(self._number, 1)

    def take(self) -> None:
        """Reset and call; before the call, so that a `set` during it is not lost."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._number)
        self._call()

    def close(self) -> None:
        """Free the descriptor.  Closing twice is harmless."""
        with self._lock:
            if self._number >= 0:
                os.close(self._number)
            self._number = -1


class Loop:
    """The selector, the timers and who is to be told."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.now = clock
        self._selector = selectors.DefaultSelector()
        self._handlers: dict[Connection, Handler] = {}
        self._deadlines: dict[Connection, Timer] = {}
        self._ended: list[Connection] = []
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = count()

    # --- what is served --------------------------------------------------------------------------

    def listen(self, listener: Listener, handler: Handler) -> None:
        """Accept connections and tell `handler` of them."""

        def on_event(_events: int) -> None:
            for connection in listener.accept(self.now()):
                self.add(connection, handler)
            if listener.exhausted:
                # Who waits to be accepted would wake the loop again and again.
                self._selector.unregister(listener)
                self.call_after(_REST_SECONDS, register)

        def register() -> None:
            if listener.fileno() >= 0:
                self._selector.register(listener, _READ, on_event)

        register()

    def stop_listening(self, listener: Listener) -> None:
        """Close a listener."""
        with suppress(KeyError):
            self._selector.unregister(listener)
        listener.close()

    def add(self, connection: Connection, handler: Handler) -> None:
        """Serve a connection until it ends."""
        self._handlers[connection] = handler
        connection.watcher = self
        if connection.closed:
            self._ended.append(connection)
            return
        self._selector.register(connection, self._interest(connection), connection)
        if not connection.authenticated:
            self._deadlines[connection] = self.call_at(connection.deadline, connection.expire)

    def hand_over(self, connection: Connection, handler: Handler) -> None:
        """From now on another handler is told of a connection that is served."""
        if connection in self._handlers:
            self._handlers[connection] = handler

    def wakeup(self, call: Callable[[], None]) -> Wakeup:
        """Something that other threads can set to have `call` called here."""
        fresh = Wakeup(call)
        self._selector.register(fresh, _READ, lambda _events: fresh.take())
        return fresh

    def forget_wakeup(self, wakeup: Wakeup) -> None:
        """Close a wakeup."""
        self._selector.unregister(wakeup)
        wakeup.close()

    def call_at(self, when: float, call: Callable[[], None]) -> Timer:
        """Call once, at a time of `now()` or soon after it."""
        timer = Timer(when, call)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def call_after(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Call once, after so many seconds."""
        return self.call_at(self.now() + seconds, call)

    # --- what connections say (Watcher) ----------------------------------------------------------

    def changed(self, connection: Connection) -> None:
        """Adapt what is waited for, or note that it has ended."""
        if connection.closed:
            if connection in self._handlers:
                self._ended.append(connection)
            return
        with suppress(KeyError):
            self._selector.modify(connection, self._interest(connection), connection)
        if connection.finishing and connection not in self._deadlines:
            self._deadlines[connection] = self.call_at(connection.deadline, connection.expire)

    def closing(self, connection: Connection) -> None:
        """Forget the socket; the owner is told only if `ended` says that it ended by itself."""
        with suppress(KeyError):
            self._selector.unregister(connection)
        self._forget_deadline(connection)
        if connection.ended is None:
            self._handlers.pop(connection, None)

    def _forget_deadline(self, connection: Connection) -> None:
        timer = self._deadlines.pop(connection, None)
        if timer is not None:
            timer.cancel()

    # --- running ---------------------------------------------------------------------------------

    def run_once(self, timeout: float | None = None) -> None:
        """Wait for something to happen, at most `timeout` seconds, and handle all that has."""
        self._tell_ended()
        happened = self._selector.select(self._wait(timeout))
        # Those inside, and strangers who have answered, before anybody else is let into a doorway.
        for key, events in happened:
            if isinstance(key.data, Connection):
                self._serve(key.data, events)
        for key, events in happened:
            if not isinstance(key.data, Connection):
                key.data(events)
        self._fire_timers()
        self._tell_ended()

    def close(self) -> None:
        """Close all connections and the selector.  Listeners and wakeups are their owners'."""
        for connection in list(self._handlers):
            connection.close()
        self._handlers.clear()
        self._selector.close()

    def _wait(self, timeout: float | None) -> float:
        wait = _LONGEST_WAIT_SECONDS if timeout is None else timeout
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        if self._timers:
            wait = min(wait, self._timers[0][0] - self.now())
        return 0.0 if self._ended else max(0.0, wait)

    def _serve(self, connection: Connection, events: int) -> None:
        # An earlier event of the same round may have closed it.
        if events & _WRITE and not connection.closed:
            connection.on_writable()
        if not events & _READ or connection.closed:
            return
        was_authenticated = connection.authenticated
        messages = connection.on_readable()
        handler = self._handlers.get(connection)
        if handler is None:
            return
        if connection.authenticated and not was_authenticated:
            self._forget_deadline(connection)
            handler.authenticated(connection)
        # The handler may have closed it in `authenticated`.
        if messages and connection in self._handlers:
            handler.received(connection, messages)
        if isinstance(connection.fault, NotAllowed):
            connection.finish(self.now())  # the handler is told when the peer has hung up

    def _fire_timers(self) -> None:
        # Those that are due now: a timer that sets itself again must not keep the loop here.
        now, due = self.now(), []
        while self._timers and self._timers[0][0] <= now:
            due.append(heapq.heappop(self._timers)[2])
        for timer in due:
            call, timer.call = timer.call, None
            if call is not None:
                call()

    def _tell_ended(self) -> None:
        while self._ended:
            connection = self._ended.pop(0)
            handler = self._handlers.pop(connection, None)
            if handler is not None:
                handler.closed(connection)

    @staticmethod
    def _interest(connection: Connection) -> int:
        return _READ | (_WRITE if connection.watch() else 0)

"""Timers, wakeups from other threads, and who is told what."""

import threading

import pytest
from net_vocabulary import Recorder, world

from rewake.net.wire.codec import Message
from rewake.net.wire.connection import Connection
from rewake.net.wire.loop import Loop
from rewake.node.messages import Stop


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_timers_fire_in_order_and_never_early() -> None:
    """Those of one time in the order in which they were set."""
    clock = Clock()
    loop = Loop(clock)
    fired: list[str] = []
    loop.call_after(2, lambda: fired.append("c"))
    loop.call_after(1, lambda: fired.append("a"))
    loop.call_after(1, lambda: fired.append("b"))
    clock.now += 0.999
    loop.run_once(0)
    assert fired == []
    clock.now += 5
    loop.run_once(0)
    assert fired == ["a", "b", "c"]
    loop.close()


def test_a_cancelled_timer_does_not_fire_even_when_it_is_due() -> None:
    """Cancelled by another timer of the same round."""
    clock = Clock()
    loop = Loop(clock)
    fired: list[str] = []
    second = loop.call_after(2, lambda: fired.append("second"))
    loop.call_after(1, second.cancel)
    clock.now += 3
    loop.run_once(0)
    loop.run_once(0)
    assert fired == []
    loop.close()


def test_a_timer_that_sets_itself_again_does_not_keep_the_loop() -> None:
    """Sockets get their turn between."""
    clock = Clock()
    loop = Loop(clock)
    fired: list[int] = []

    def again() -> None:
        fired.append(1)
        loop.call_after(0, again)

    again()
    loop.run_once(0)
    loop.run_once(0)
    assert len(fired) == 3
    loop.close()


def test_another_thread_wakes_the_loop() -> None:
    """At once, though the loop would wait much longer; many times are one."""
    loop = Loop()
    called: list[threading.Thread] = []
    wakeup = loop.wakeup(lambda: called.append(threading.current_thread()))
    setter = threading.Thread(target=lambda: [wakeup.set() for _ in range(1000)])
    setter.start()
    loop.run_once(30.0)
    setter.join()
    loop.run_once(0)
    loop.run_once(0)
    assert 1 <= len(called) <= 2
    assert set(called) == {threading.current_thread()}
    loop.forget_wakeup(wakeup)
    wakeup.set()
    wakeup.close()
    loop.close()


def test_a_wakeup_set_while_it_is_handled_is_not_lost() -> None:
    """The reset comes before the call."""
    loop = Loop()
    called: list[int] = []

    def call() -> None:
        called.append(1)
        if len(called) == 1:
            wakeup.set()

    wakeup = loop.wakeup(call)
    wakeup.set()
    loop.run_once(0)
    loop.run_once(0)
    assert len(called) == 2
    loop.forget_wakeup(wakeup)
    loop.close()


@pytest.mark.parametrize("when", ["authenticated", "received"])
def test_a_handler_may_close_what_it_is_told_of(when: str) -> None:
    """Then it hears nothing more of it."""

    class Closing(Recorder):
        def authenticated(self, connection: Connection) -> None:
            super().authenticated(connection)
            if when == "authenticated":
                connection.close()

        def received(self, connection: Connection, messages: list[Message]) -> None:
            super().received(connection, messages)
            connection.close()

    with world() as there:
        closing = Closing()
        there.until(lambda: True)
        connection = there.connect(closing)
        there.until(lambda: there.server.connections)
        accepted = there.server.connections[0]
        accepted.send(Stop("one"))
        accepted.send(Stop("two"))
        there.until(lambda: there.server.ended)
        assert connection.closed
        assert closing.ended == []
        assert len(closing.messages) <= 2


def test_a_connection_that_has_ended_before_it_is_added_is_told() -> None:
    """As if it had ended afterwards."""
    with world() as there:
        client = Recorder()
        connection = there.connect(Recorder())
        connection.expire()
        there.loop.add(connection, client)
        there.until(lambda: client.ended == [connection])

"""A server: the process that hosts one or several nodes, with one thread for all but logs' writes.

    coordinator <-> control connection      epochs, peers, heartbeats, stop: for all its nodes
    others      <-> one listener            who comes says first to which node (`Reception`)
    nodes       <-> `NodeHost`s             each with its own epoch, log, sources, sink

What always holds: it lives and dies as one.  A node that fails ends the process, one that is
superseded makes all leave, and when the query is over all leave together.  Between its nodes there
is no socket (`rewake.node.channels.lane`).  Whoever takes long in a turn keeps the others waiting.
"""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from typing import Any, Final

from rewake.model.errors import (
    ArithmeticOverflow,
    GaveUp,
    HistoryMismatch,
    LoopGrows,
    OperatingFault,
    RewakeError,
)
from rewake.net.nodes.host import NodeHost
from rewake.net.nodes.share import Line, Share
from rewake.net.nodes.task import ServerTask
from rewake.net.wire.authentication import Token
from rewake.net.wire.connection import Connection, Unanswered
from rewake.net.wire.listener import Listener, address_towards
from rewake.net.wire.loop import Loop
from rewake.node.channels.reception import Reception
from rewake.node.messages import (
    Address,
    Failed,
    KeepBookmark,
    PeerMoved,
    PlaceLost,
    Refused,
    Register,
    Stop,
    Superseded,
    Welcome,
)

__all__ = ["CoordinatorLost", "Server", "run_server"]

# For the first word with the coordinator.
_REACH_SECONDS: Final = 5.0
_LINGER_SECONDS: Final = 10.0
_HANG_UP_SECONDS: Final = 2.0


class CoordinatorLost(OperatingFault):
    """The coordinator cannot be reached, or its connection broke."""


class Server:
    """Runs one attempt of each of its nodes until it is stopped, or one is superseded or broken."""

    def __init__(self, task: ServerTask) -> None:
        self._task = task
        self.token = Token.from_text(task.token)
        self.loop = Loop()
        listen = address_towards(task.coordinator)
        self._listener = Listener(self.token, listen, allow_remote=task.allow_remote)
        self.address: Address = self._listener.address
        self._listening = False
        self._control: Connection | None = None
        self._reached = False
        self._stop: str | None = None
        self._hosts = {each.plan.name: NodeHost(each, Share(self)) for each in task.nodes}
        self.reception: Reception[Line] = Reception(self._hosts, self._admit, self._refuse)

    # --- its life ----------------------------------------------------------------------------

    def run(self) -> str:
        """Run until stopped; why it was.  Raises Fenced when superseded, and what broke it."""
        for host in self._hosts.values():
            host.points.hit("node.start")
        self._reach_coordinator()
        hosts = list(self._hosts.values())
        while self._stop is None:
            busy = False
            for host in hosts:
                busy = host.share.answer_for(host.step) or busy
            self.loop.run_once(0.0 if busy else min(host.patience for host in hosts))
        self._leave(hosts)
        return self._stop

    def close(self) -> None:
        """Close every socket; what is not durable is lost, as it may be."""
        self.loop.close()
        self._listener.close()

    def _leave(self, hosts: list[NodeHost]) -> None:
        """Let subscribers have what is durable, then close all logs."""
        for host in hosts:
            host.share.answer_for(host.stop)
        deadline = self.loop.now() + _LINGER_SECONDS
        while self._lingers(hosts) and self.loop.now() < deadline:
            self.loop.run_once(0.01)
        with ExitStack() as leaving:  # whatever one of them meets: processes may be used again
            for host in reversed(hosts):
                leaving.callback(host.share.answer_for, host.leave)
        self._hang_up()

    def _lingers(self, hosts: list[NodeHost]) -> bool:
        lingering = [host for host in hosts if host.share.answer_for(host.linger)]
        return bool(lingering)

    # --- the coordinator ---------------------------------------------------------------------

    def _reach_coordinator(self) -> None:
        started = self.loop.now()
        unanswered = Unanswered(started)
        while not self._reached and self._stop is None:
            if self._control is not None and unanswered.is_late(self._control, self.loop.now()):
                self._control.close()
            if self._control is None or self._control.closed:
                self._call_coordinator()
            self.loop.run_once(0.05)
            if not self._reached and self.loop.now() > started + _REACH_SECONDS:
                host, port = self._task.coordinator
                raise CoordinatorLost(
                    f"{self._task.words} cannot reach the coordinator at {host}:{port}; the "
                    "driver must be reachable from the workers under that address"
                )

    def _call_coordinator(self) -> None:
        self._control = Connection.connect(self._task.coordinator, self.token, self.loop.now())
        me, pid = socket.gethostname(), os.getpid()
        for name, host in self._hosts.items():
            here = Register(name, self.address, pid, me, self._task.name, host.place)
            self._control.send(here)
        self.loop.add(self._control, self)
        for host in self._hosts.values():
            host.registered()

    def tell(self, message: object) -> None:
        """Say something to the coordinator."""
        if self._control is not None:
            self._control.send(message)

    def authenticated(self, connection: Connection) -> None:  # noqa: ARG002
        """The registration is under way.

        Now it may take its time: an epoch is given when there is room to keep it.
        """
        self._reached = True

    def received(self, connection: Connection, messages: list[Any]) -> None:  # noqa: ARG002
        """Epochs, peers, orders."""
        for message in messages:
            match message:
                case Welcome(name):
                    host = self._hosts[name]
                    host.share.answer_for(host.welcomed, message)
                case PeerMoved(name, peer):
                    for host in self._hosts.values():
                        host.share.answer_for(host.moved, name, peer)
                case PlaceLost(name, place, epoch):
                    host = self._hosts[name]
                    host.share.answer_for(host.place_lost, place, epoch)
                case KeepBookmark(name):
                    host = self._hosts[name]
                    host.share.answer_for(host.bookmark_kept, message)
                case Stop(reason):
                    self._stop = reason
                case Superseded(epoch, name):
                    self._hosts[name].superseded(epoch)
                case Refused(reason):
                    raise OperatingFault(f"the coordinator refused {self._task.words}: {reason}")

    def closed(self, connection: Connection) -> None:
        """Without its coordinator a node does not know whether it may go on: it ends."""
        if connection is self._control and self._reached:
            raise CoordinatorLost(f"{self._task.words} lost its coordinator: {connection.ended}")

    def _hang_up(self) -> None:
        if self._control is None or self._control.closed:
            return
        self._control.finish(self.loop.now())
        deadline = self.loop.now() + _HANG_UP_SECONDS
        while not self._control.closed and self.loop.now() < deadline:
            self.loop.run_once(0.02)

    # --- who comes ---------------------------------------------------------------------------

    def opened(self, node: str) -> None:
        """A node can be come to from now on."""
        if not self._listening:
            self._listening = True
            self.loop.listen(self._listener, self.reception)
        self.reception.opened(node)

    def _admit(self, node: str, line: Line, messages: list[Any]) -> None:
        self._hosts[node].admit(line, messages)

    def _refuse(self, line: Line, why: Refused) -> None:
        line.send(why)
        line.finish(self.loop.now())

    # --- what broke it -----------------------------------------------------------------------

    def _failed(self) -> NodeHost:
        """The node whose error it is; of one that is nobody's, the first must do."""
        hosts = list(self._hosts.values())
        return next((host for host in hosts if host.share.failed), hosts[0])

    def fail(self, error: Exception) -> None:
        """Tell the coordinator that a restart would not help, and wait for its stop."""
        text = str(error) if isinstance(error, RewakeError) else f"{type(error).__name__}: {error}"
        misfit = isinstance(error, HistoryMismatch)
        host = self._failed()
        self.tell(Failed(host.name, host.epoch, text, misfit=misfit))
        self._hang_up()

    def say(self, text: str) -> None:
        """Tell the coordinator why it ends, and wait for nothing: another is to begin."""
        host = self._failed()
        if host.epoch and self._control is not None and not self._control.closed:
            self._control.send(Failed(host.name, host.epoch, text, fatal=False))
            self._control.finish(self.loop.now())


def run_server(task: ServerTask) -> str:
    """Be a server of a query in this process; see `Server.run`."""
    server = Server(task)
    try:
        return server.run()
    except (ArithmeticOverflow, GaveUp, LoopGrows) as error:
        server.fail(error)  # the next attempt would meet the same tuples, or wait as long
        raise
    except OperatingFault as error:
        server.say(str(error))  # another attempt may fare better
        raise
    except Exception as error:
        server.fail(error)
        raise
    except BaseException as error:  # sys.exit in a function of the query: nobody told it to leave
        server.say(f"a function of the query raised {type(error).__name__}({error})")
        raise
    finally:
        server.close()

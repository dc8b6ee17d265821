"""A query that runs: its coordinator here, its nodes wherever the launcher puts them."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Mapping
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from rewake.graph.plan.plan import Plan
from rewake.graph.plan.servers import Seat
from rewake.graph.query import Query
from rewake.model.connectors import SourceReader
from rewake.model.errors import MisfitQuery, OperatingFault, QueryFailed, UsageError
from rewake.model.near import did_you_mean
from rewake.model.units import duration_ns
from rewake.net.clients.client import Endpoint, Subscription, check_shard_of, past_of
from rewake.net.clients.early import EarlyResults
from rewake.net.clients.producer import Producer
from rewake.net.kill_points import Fault
from rewake.net.nodes.calibration import calibration
from rewake.net.nodes.task import NodeTask, ServerTask
from rewake.net.queries.coordinator_host import CoordinatorHost, Happening
from rewake.net.queries.processes import Launcher, Processes
from rewake.net.wire.addresses import LOOPBACK
from rewake.node.coordinator.coordinator import MISSING_AFTER_MS
from rewake.node.coordinator.failure_detector import SUSPECT_AFTER_MS
from rewake.node.limits import NodeLimits
from rewake.stores.places import local_path

# From here on nodes begin with guesses, which are high, and correct them by what they see: that is
# time enough, and whoever asks for no more need not wait a second for the query to start.
_UNCALIBRATED_NS = duration_ns("10s")


class RunningQuery:
    """A handle on a query from its start to its end; a context manager that stops it.

    `listen` is the address of this machine under which nodes and clients reach it.  Any but a
    loopback address needs `allow_remote=True`, because the bytes on the wire are authenticated
    but not encrypted.

    A node that is silent for `suspect_after` seconds is replaced, and later where heartbeats come
    late by themselves, as on a busy machine; a node that dies is noticed at once.  When nobody has
    come to run a node for `missing_after` seconds, the query ends with an error.

    `servers` is how many processes or Spark tasks share the nodes, whatever the query says of it.
    """

    def __init__(
        self,
        plan: Plan,
        folder: str | Path,
        launcher: Launcher,
        *,
        limits: NodeLimits | None = None,
        faults: Iterable[Fault] = (),
        listen: str = LOOPBACK,
        allow_remote: bool = False,
        suspect_after: float = SUSPECT_AFTER_MS / 1e3,
        missing_after: float = MISSING_AFTER_MS / 1e3,
        servers: int | None = None,
    ) -> None:
        plan = plan.on(servers)
        for name, seconds in (("suspect_after", suspect_after), ("missing_after", missing_after)):
            if not (isinstance(seconds, int | float) and seconds > 0):
                raise UsageError(f"{name} is {seconds!r}; give it seconds, more than 0")
        self.plan = plan
        self.folder = local_path(folder)
        self._launcher = launcher
        faults = tuple(faults)
        self._host = CoordinatorHost(
            plan, self.folder, host=listen, allow_remote=allow_remote, faults=faults,
            suspect_after_ms=suspect_after * 1e3, missing_after_ms=missing_after * 1e3,
        )  # fmt: skip
        self._closed = False
        self._host.start()
        try:
            costs = calibration(self.folder) if _calibrates(plan) else None

            def fill(seat: Seat) -> NodeTask:
                return NodeTask(
                    plan=plan.node(seat.node),
                    place=seat.place,
                    folder=str(self.folder.resolve()),
                    fingerprint=plan.fingerprint,
                    former_fingerprint=plan.former_fingerprint,
                    coordinator=self._host.address,
                    token=self._host.token.reveal(),
                    limits=limits or NodeLimits(),
                    faults=faults,
                    costs=costs,
                    allow_remote=allow_remote,
                )

            tasks = [
                ServerTask(each.name, tuple(fill(seat) for seat in each.seats))
                for each in plan.hosting
            ]
            launcher.start(tasks, self._host)
        except BaseException:
            self._host.stop("the query could not be started")
            self._close()
            raise

    # --- watching ----------------------------------------------------------------------------

    @property
    def history(self) -> list[Happening]:
        """What happened to nodes so far."""
        return list(self._host.history)

    def status(self) -> dict[str, dict[str, Any]]:
        """What each node last said of itself."""
        return self._host.status()

    @property
    def running(self) -> list[str]:
        """Nodes that run now."""
        return self._host.running

    @property
    def active(self) -> bool:
        """Whether it has neither ended nor failed."""
        return not self._host.ended.is_set()

    def await_start(self, timeout: float = 60.0) -> None:
        """Wait until every node runs."""
        deadline = time.monotonic() + timeout
        while len(self._host.running) < len(self.plan.nodes) and self.active:
            if time.monotonic() > deadline:
                missing = {each.name for each in self.plan.nodes} - set(self._host.running)
                raise OperatingFault(
                    f"nodes {', '.join(sorted(missing))} did not start within {timeout:g} s"
                )
            time.sleep(0.01)
        self._raise_error()

    def await_end(self, timeout: float | None = None) -> bool:
        """Wait for the end of a finite query; False when the time is over.  Raises if it failed."""
        ended = self._host.ended.wait(timeout)
        self._raise_error()
        return ended

    def _raise_error(self) -> None:
        if self._host.error is not None:
            error = self._host.error
            self._close()
            raise MisfitQuery(error) if self._host.misfit else QueryFailed(error)

    # --- using -------------------------------------------------------------------------------

    @property
    def endpoint(self) -> Endpoint:
        """Where clients connect, with a token that reads and produces and nothing else."""
        return self._host.endpoint

    def subscribe(
        self, stream: str, *, shard: int | None = None, position: int = 0, name: str = "client"
    ) -> Subscription:
        """Read a stream from a position on, live; from its log when the query is over.

        Of a stream with several shards, one of them: each has tuples of its own.
        """
        places = self._places(stream)
        check_shard_of(stream, shard, len(places))
        node, output = places[shard or 0]
        schema = self.plan.node(node).outputs[output].schema

        def past(position: int) -> SourceReader:
            return past_of(self.folder, stream, node, output, schema, position)

        return Subscription(
            self.endpoint, stream, schema, shard=shard, position=position, name=name, past=past
        )

    def early(self, stream: str) -> pa.Table:
        """What the open windows behind a stream come to so far, as a table of its columns.

        The query goes on as if nothing had been asked, and recovery knows nothing of it.
        """
        places = self._places(stream)
        schema = self.plan.node(places[0][0]).outputs[places[0][1]].schema
        with EarlyResults(self.endpoint, stream, schema) as asked:
            return pa.Table.from_batches(asked.batches(), schema)

    def _places(self, stream: str) -> tuple[tuple[str, int], ...]:
        places = self.plan.streams.get(stream)
        if not places:
            known = ", ".join(sorted(self.plan.streams)) or "none"
            raise UsageError(f"the query has no stream {stream!r}; it has {known}")
        return places

    def produce(self, entry: str, *, name: str = "producer", shard: int = 0) -> Producer:
        """Send tuples into an entry; several producers at once each need a name of their own."""
        return Producer(self.endpoint, entry, name=name, shard=shard, folder=self.folder)

    def signal_node(self, node: str, sign: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to the process of a node, as an accident would; its pid.

        It strikes all the nodes of that server.
        """
        pid = self._host.pid_of(node)
        if not pid:
            raise UsageError(f"node {node!r} does not run now")
        if not self._host.signal(node, sign):
            raise UsageError(
                f"node {node!r} is not a process of this machine that can be signalled, or has "
                "just ended; signal it where it runs"
            )
        return pid

    # --- ending ------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop cleanly: what is processed is durable, and running it again continues there."""
        if not self._closed:
            self._host.stop("stopped by the user")
            self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._launcher.stop()
            self._host.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()


def _calibrates(plan: Plan) -> bool:
    """Whether a promise is so short that what is guessed of slow machines would spoil it."""
    promised = (
        node.approach.settings().get("recover_within")
        for node in plan.nodes
        if node.program.stateful is not None
    )
    return any(each is not None and duration_ns(each) < _UNCALIBRATED_NS for each in promised)


def start_processes(query: Query, folder: str | Path, **options: Any) -> RunningQuery:
    """Run a query, its nodes as plain processes of this machine, without Spark.

    As `rewake.start` in everything else.
    """
    check_start(query, options)
    return RunningQuery(query.plan(), folder, Processes(), **options)


def check_start(query: object, options: Mapping[str, object]) -> None:
    """Raise UsageError unless this is a query, and these are options of `RunningQuery`."""
    if not isinstance(query, Query):
        raise UsageError(f"what is started is a rewake.Query, not {query!r}")
    parameters = signature(RunningQuery).parameters.values()
    known = [each.name for each in parameters if each.kind is Parameter.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known) or "."
            raise UsageError(f"there is no option {name!r}{hint} Options: {', '.join(known)}")

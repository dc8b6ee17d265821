"""A node's sink: looked at first, and opened when it is known to be this folder's.

Opening a sink fences whoever writes to it.  So one that says from which logs its tuples are is only
looked at, until the upstreams have said their lineages and these were found to fit; another query's
sink is refused and its writer does not notice.  A sink that says nothing is opened at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rewake.graph.plan.plan import NodePlan
from rewake.model.connectors import BindingSink, BindingWriter, SinkWriter
from rewake.model.errors import HistoryMismatch, OperatingFault
from rewake.model.stream_event import StreamEvent
from rewake.node.channels.origins import SinkOrigins

__all__ = ["NodeSink"]


class NodeSink:
    """The sink of one attempt of a node in `folder`."""

    def __init__(
        self,
        plan: NodePlan,
        folder: str,
        origins: Mapping[str, Any] | None,
        queries: tuple[str, ...] = (),
    ) -> None:
        """`queries`: fingerprints of the query that runs in the folder, the present one first."""
        self._plan = plan
        self._folder = folder
        self._queries = queries
        # Where input comes from, as far as this folder knows.
        self._origins = origins
        # What the sink said of that before it was opened.
        self._said: Mapping[str, Any] | None = None
        self._writer: SinkWriter | None = None

    def find(self) -> tuple[Sequence[int], SinkOrigins]:
        """How far the sink is by channel, and whose."""
        plan, where, channels = self._plan, "", range(len(self._plan.inputs))
        if isinstance(plan.sink, BindingSink):
            where = plan.sink.where
            reached, self._said = plan.sink.look(plan.shard, plan.shards)
            self._check_query(where, reached)
            if self._said is not None and any(reached.values()):
                committed = [reached.get(channel, 0) for channel in channels]
                return committed, SinkOrigins(where, self._folder, self._said)
        writer = self.open()
        committed = [writer.position(channel) for channel in channels]
        return committed, SinkOrigins(where, self._folder, self._said)

    def _check_query(self, where: str, reached: Mapping[int, int]) -> None:
        """Raise HistoryMismatch when another query has written there, whatever it reads.

        Of what comes from logs the logs say more; a source that is read again has no other name.
        """
        said = self._said or {}
        wrote, logs = said.get("query"), said.get("channels", {})
        unnamed = [channel for channel, at in reached.items() if at and str(channel) not in logs]
        if unnamed and wrote and self._queries and wrote not in self._queries:
            raise HistoryMismatch(
                f"the sink {self._plan.name!r} in {where} was written by another query (the one in "
                f"{said.get('folder')}), which has come to position {reached[unnamed[0]]}; give "
                "this query a sink of its own"
            )

    def open(self) -> SinkWriter:
        """Become its writer, if that has not happened yet.

        What was committed since it was looked at comes again, and is left out then.
        """
        if self._writer is None:
            plan = self._plan
            assert plan.sink is not None, "a node with a sink"
            writer = plan.sink.open(plan.shard, plan.shards, plan.inputs[0].schema)
            if isinstance(writer, BindingWriter) and writer.origins != self._said:
                writer.close()
                raise OperatingFault(
                    f"another writer of the sink {plan.name!r} has said meanwhile where its tuples "
                    "are from; the next attempt looks again whose it is"
                )
            self._writer = writer
            self._bind()
        return self._writer

    def bind(self, origins: Mapping[str, Any]) -> None:
        """Input comes from there: the sink shall say so from its next commit on."""
        self._origins = origins
        self._bind()

    def _bind(self) -> None:
        if isinstance(self._writer, BindingWriter) and (self._origins or self._queries):
            query = {"query": self._queries[0]} if self._queries else {}
            self._writer.bind({**(self._origins or {}), "folder": self._folder, **query})

    def write(self, channel: int, event: StreamEvent) -> None:
        """Take a stream event; it counts when a later `commit` returns."""
        self.open().write(channel, event)

    def commit(self) -> list[int] | None:
        """Commit what was written; how far each channel is, or None when it is not open yet."""
        if self._writer is None:
            return None
        self._writer.commit()
        return [self._writer.position(channel) for channel in range(len(self._plan.inputs))]

    def close(self) -> None:
        """Release what is held; what was not committed is forgotten."""
        if self._writer is not None:
            self._writer.close()

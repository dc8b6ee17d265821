"""Starting a query on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewake.graph.query import Query
from rewake.model.errors import UsageError
from rewake.net.queries.running import RunningQuery, check_start
from rewake.spark.job import SparkNodes
from rewake.spark.session import local_session
from rewake.stores.places import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["start"]


class _OwnSession(SparkNodes):
    """Nodes on a session that nobody else uses: it ends with them."""

    def stop(self) -> None:
        """Wait for the nodes, then stop Spark."""
        try:
            super().stop()
        finally:
            self._session.stop()


def start(
    query: Query, folder: str | Path, session: SparkSession | None = None, **options: Any
) -> RunningQuery:
    """Run a query, its nodes as long-lived tasks of a Spark session.

    `folder` holds the query's logs: starting the same query there again continues where it stopped,
    exactly once.  Without a session a local one is started, and stopped with the query.  `options`
    are those of `RunningQuery`.
    """
    check_start(query, options)
    _check_session(session)
    folder = local_path(folder)
    plan = query.plan().on(options.get("servers"))
    if session is not None:
        return RunningQuery(plan, folder, SparkNodes(session), **options)
    launcher = _OwnSession(local_session(nodes=len(plan.hosting)))
    try:
        return RunningQuery(plan, folder, launcher, **options)
    except BaseException:
        launcher.stop()
        raise


def _check_session(session: object) -> None:
    # By what it can do: a session of Spark Connect is of another class.
    if session is not None and not (hasattr(session, "range") and hasattr(session, "conf")):
        raise UsageError(
            f"session is a SparkSession, not {session!r}; make one with SparkSession.builder, or "
            "leave it out, and a local one is started"
        )

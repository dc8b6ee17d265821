"""Figures of shards as Prometheus metrics, fed by Spark's own progress.

    exporter = export_metrics(spark, port=9109)
    ...
    exporter.close()

    rewake_shard_open_windows{query,operator,shard}          windows that are open: N
    rewake_shard_extent_records{...}                         records that a recovery would load: q
    rewake_shard_extent_bytes{...}                           bytes of the log that it would read
    rewake_shard_replay_tuples{...}                          tuples that it would replay: u
    rewake_shard_checkpoint_bytes{...}                       bytes logged for the last batch
    rewake_shard_predicted_recovery_seconds{...}             how long it would take
    rewake_shard_last_recovery_seconds{...}                  how long it took when it last did
    rewake_shard_last_recovery_predicted_seconds{...}        and how long it should have
    rewake_shard_late_tuples{...}                            rows that came too late, dropped

What always holds: the metrics of a query are there from its first batch until it ends; a shard that
had no rows in a batch keeps its figures.  Nothing listens unless a port was given, and then on
loopback unless another address was.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from rewake.spark.requirements import MissingRequirement
from rewake.spark.structured.observe import figures_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["GAUGES", "MetricsExporter", "export_metrics"]

GAUGES: Final = {
    "open_windows": "Windows that are open",
    "extent_records": "Records of the log that a recovery would load",
    "extent_bytes": "Bytes of the log that a recovery would read",
    "replay_tuples": "Tuples that a recovery would replay",
    "checkpoint_bytes": "Bytes that the last batch left in the log",
    "predicted_recovery_seconds": "How long a recovery would take if the crash were now",
    "last_recovery_seconds": "How long the shard's last recovery took; 0 without one",
    "last_recovery_predicted_seconds": "How long that recovery was expected to take",
    "late_tuples": "Rows that came too late for their windows and were dropped",
}
_LABELS: Final = ("query", "operator", "shard")


class MetricsExporter:
    """The gauges of all queries of a session; `close` takes them back."""

    def __init__(self, session: SparkSession, registry: Any = None) -> None:
        client = _client()
        self._registry = registry if registry is not None else client.CollectorRegistry()
        self._gauges = {
            name: client.Gauge(f"rewake_shard_{name}", text, _LABELS, registry=self._registry)
            for name, text in GAUGES.items()
        }
        self._labels: dict[str, set[tuple[str, str, str]]] = {}
        self._server: Any = None
        self._session = session
        self._listener = _listener(self)
        session.streams.addListener(self._listener)

    @property
    def registry(self) -> Any:
        """Where the gauges are registered."""
        return self._registry

    def serve(self, port: int, listen: str) -> int:
        """Answer scrapes over HTTP; the port, which is a free one for 0."""
        self._server = _client().start_http_server(port, addr=listen, registry=self._registry)
        return int(self._server[0].server_port)

    def update(self, query: str, run: str, metrics: Any) -> None:
        """Take over the figures in a progress of a query."""
        known = self._labels.setdefault(run, set())
        for operator, shards in figures_of(metrics).items():
            for shard, figures in shards.items():
                labels = (query, operator, str(shard))
                known.add(labels)
                for name, gauge in self._gauges.items():
                    gauge.labels(*labels).set(figures[name])

    def forget(self, run: str) -> None:
        """A query has ended: it has no figures any more."""
        for labels in self._labels.pop(run, ()):
            for gauge in self._gauges.values():
                gauge.remove(*labels)

    def close(self) -> None:
        """Listen to no query any more, and answer nobody."""
        self._session.streams.removeListener(self._listener)
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join()
            self._server = None


def export_metrics(
    session: SparkSession,
    *,
    port: int | None = None,
    listen: str = "127.0.0.1",
    registry: Any = None,
) -> MetricsExporter:
    """Export figures of all queries of a session; over HTTP when there is a port."""
    exporter = MetricsExporter(session, registry)
    if port is not None:
        exporter.serve(port, listen)
    return exporter


def _client() -> Any:
    try:
        return import_module("prometheus_client")
    except ImportError as error:
        raise MissingRequirement(
            "prometheus-client is not installed; pip install 'rewake[metrics]'"
        ) from error


def _listener(exporter: MetricsExporter) -> Any:
    from pyspark.sql.streaming import StreamingQueryListener  # noqa: PLC0415 (optional, slow)

    class Listener(StreamingQueryListener):  # type: ignore[misc, unused-ignore]
        """Hands progress on."""

        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            """Nothing is known yet."""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            """A batch is done."""
            progress = event.progress
            query = progress.name or str(progress.id)
            exporter.update(query, str(progress.runId), progress.observedMetrics)

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            """Figures stay as they are."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            """The query is over."""
            exporter.forget(str(event.runId))

    return Listener()

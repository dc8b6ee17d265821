"""Spark's settings that decide how fast rows and micro-batches get to Python and back.

Found with a profiler, and measured: docs/design/shards-of-micro-batches.md.  A session from
`local_session` has them.  For one of your own:

    SparkSession.builder.config(map=dict(FAST_PYTHON))

What always holds: none of them changes a result.
"""

from collections.abc import Mapping
from typing import Final

__all__ = ["FAST_PYTHON", "SOCKETS_ENABLED", "SOCKET_FOLDER"]

SOCKETS_ENABLED: Final = "spark.python.unix.domain.socket.enabled"
# Where these sockets are made; by default among the machine's temporary files.
SOCKET_FOLDER: Final = "spark.python.unix.domain.socket.dir"

FAST_PYTHON: Final[Mapping[str, str]] = {
    # Over TCP, the first rows of every task wait 40 ms for an acknowledgement that is put off.
    SOCKETS_ENABLED: "true",
    # With any limit but this one, Spark computes the size of the batch again after every row.
    # What bounds a batch is then its number of rows (spark.sql.execution.arrow.maxRecordsPerBatch).
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
    # Else Spark plans the second half of every micro-batch anew when the first has ended.
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
}

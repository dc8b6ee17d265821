"""How many tasks a Spark session can run at once, as far as its settings say.

A query needs a slot for every server, for as long as it runs.  With fewer, Spark would let the last
servers wait for ever; so it is found out at the start.  The settings are read through the session
alone, so this works through Spark Connect, too.
"""

import re
from typing import TYPE_CHECKING

from rewake.model.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TooFewSlots", "check_slots", "slots"]

_LOCAL = re.compile(r"local(?:\[(?P<cores>\d+)(?:\s*,\s*\d+)?\])?$")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]$")


class TooFewSlots(UsageError):
    """The query has more servers than Spark can run at once."""


def slots(session: "SparkSession") -> int | None:
    """How many tasks can run at once, or None when the settings do not tell."""
    cores = _cores(session)
    return (
        None if cores is None else cores // max(1, int(_setting(session, "spark.task.cpus", "1")))
    )


def _cores(session: "SparkSession") -> int | None:
    master = _setting(session, "spark.master", "")
    if local := _LOCAL.match(master):
        return int(local["cores"] or 1)
    if cluster := _LOCAL_CLUSTER.match(master):
        return int(cluster[1]) * int(cluster[2])
    if master.startswith("local["):
        return _default_parallelism(session)  # local[*]
    each = _setting(session, "spark.executor.cores", "")
    count = _setting(session, "spark.executor.instances", "")
    if _setting(session, "spark.dynamicAllocation.enabled", "false") == "true":
        count = _setting(session, "spark.dynamicAllocation.maxExecutors", "")
    total = _setting(session, "spark.cores.max", "")
    if each.isdigit() and count.isdigit():
        return int(each) * int(count)
    return int(total) if total.isdigit() else None


def _setting(session: "SparkSession", name: str, default: str) -> str:
    return str(session.conf.get(name, default)).strip()


def _default_parallelism(session: "SparkSession") -> int | None:
    # Not there through Connect, nor on clusters where Spark's own classes are out of reach.
    try:
        return int(session.sparkContext.defaultParallelism)
    except Exception:
        return None


def check_slots(session: "SparkSession", servers: int, available: int | None) -> None:
    """Raise unless `servers` tasks can run at once; an unknown number is believed."""
    if available is None or servers <= available:
        return
    share = f"let nodes share a task, with Query(..., servers={max(available, 1)})"
    master = _setting(session, "spark.master", "")
    if master.startswith("local"):
        remedy = (
            f"{share}, or start it with local[{servers + 2}] or more "
            f"(local_session(nodes={servers})): a slot for every server, and some for other work"
        )
    else:
        remedy = f"{share}, or give the application more executors or cores"
    raise TooFewSlots(
        f"the query needs {servers} servers at once but Spark has {available} slots ({master}); "
        f"{remedy}"
    )

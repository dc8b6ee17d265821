"""Makes Spark know `format("rewake")` by itself.

Spark looks for installed packages named `pyspark_*` and registers the `DefaultSource` of each.
"""

from rewake.spark.datasource.source import RewakeDataSource as DefaultSource

__all__ = ["DefaultSource"]

"""The process that Spark forks Python workers from where no task is a node.

As `rewake.spark.daemon`, with less in memory: what the tasks of micro-batches and of streams as
DataFrames import.  Done by each worker, it would hold up the first batch after a start.
"""

from rewake.spark.daemon import serve

_FOR_TASKS = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyspark.worker",
    "rewake.spark.structured.divide",
    "rewake.spark.structured.task",
)

if __name__ == "__main__":
    serve(_FOR_TASKS)

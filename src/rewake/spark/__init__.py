"""Rewake on Spark: the only package that may import pyspark, and only inside functions.

`datasource` is the exception: its classes derive from Spark's, and only who uses them loads them.

What always holds: importing `rewake.spark` needs neither pyspark nor Java.  What is missing is
said when it is needed, as a `MissingRequirement` that names the remedy.
"""

from rewake.spark.java import Java, find_java, require_java
from rewake.spark.requirements import MissingRequirement
from rewake.spark.session import local_session
from rewake.spark.settings import FAST_PYTHON

__all__ = [
    "FAST_PYTHON",
    "Java",
    "MissingRequirement",
    "find_java",
    "local_session",
    "require_java",
]

"""Naming the jobs of this thread so that another thread can cancel them.

A session's own tags are private to the thread that adds them, except through Spark Connect: there
they are all there is.  Where there is a SparkContext, its tags are used, which every thread sees.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["cancel_tagged", "tag_jobs"]


def tag_jobs(session: "SparkSession", tag: str) -> None:
    """Tag what this thread submits from now on."""
    context = _context(session)
    if context is None:
        session.addTag(tag)
    else:
        context.addJobTag(tag)


def cancel_tagged(session: "SparkSession", tag: str) -> None:
    """Cancel what has been submitted with a tag, by any thread."""
    context = _context(session)
    if context is None:
        session.interruptTag(tag)
    else:
        context.cancelJobsWithTag(tag)


def _context(session: "SparkSession") -> Any:
    from pyspark.errors import PySparkException  # noqa: PLC0415 (optional, slow to import)

    try:
        return session.sparkContext
    except (PySparkException, AttributeError):
        return None

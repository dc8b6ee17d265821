"""The error for a log that is damaged where it was durable, and what to do about it."""

from rewake.model.errors import DamagedLog

__all__ = ["damaged", "missing_frame"]


def damaged(
    what: str,
    segment: str,
    offset: int = -1,
    sequence: int = -1,
    *,
    remedy: str = "restore it from a copy, or ",
) -> DamagedLog:
    """The error; `remedy` is for more than the one file that it names."""
    return DamagedLog(
        f"{what}; {remedy}see what can be saved with `rewake inspect log PATH`",
        segment=segment,
        offset=offset,
        sequence=sequence,
    )


def missing_frame(segment: str, sequence: int) -> DamagedLog:
    """The error for a frame that is not where those before and behind it are."""
    what = f"frame {sequence} is missing from the log, near segment {segment}"
    return damaged(what, segment, sequence=sequence, remedy="")

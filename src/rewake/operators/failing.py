"""Finding what a user's function fails for: it is called again on halves, until one is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

__all__ = ["Failure", "failures"]


class Failure(NamedTuple):
    """What a function fails for: one thing, or several together and none of them alone."""

    start: int
    end: int
    error: Exception

    @property
    def alone(self) -> bool:
        """Whether it is one thing."""
        return self.end - self.start == 1

    @property
    def words(self) -> str:
        """The error for people, with its kind."""
        return f"{type(self.error).__name__}: {self.error}"


def failures(
    call: Callable[[int, int], object],
    start: int,
    end: int,
    kinds: tuple[type[Exception], ...] = (Exception,),
) -> Iterator[Failure]:
    """Everything from `start` to `end` that `call` fails for, in order, and how.

    Whoever wants the first only pays for no more.
    """
    try:
        call(start, end)
    except kinds as error:
        failed = error
    else:
        return
    found = False
    if end - start > 1:
        middle = (start + end) // 2
        for half in ((start, middle), (middle, end)):
            for each in failures(call, *half, kinds):
                found = True
                yield each
    if not found:
        yield Failure(start, end, failed)

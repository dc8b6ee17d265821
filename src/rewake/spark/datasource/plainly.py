"""Errors as Spark should show them.

Spark prints an error of Python with all that led to it.  Errors of Rewake say by themselves what
happened, to what, and what to do: of those only the words are left.  All other errors are bugs and
keep their traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any, ParamSpec, TypeVar

from rewake.model.errors import RewakeError

__all__ = ["plainly"]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def plainly(method: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Let an error of Rewake's show without its trace; for functions and for generators."""

    @wraps(method)
    def plain(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        try:
            return method(*arguments, **named)
        except RewakeError as error:
            raise error.with_traceback(None) from None

    @wraps(method)
    def plain_rows(*arguments: Any, **named: Any) -> Iterator[Any]:
        rows: Any = method(*arguments, **named)
        try:
            yield from rows
        except RewakeError as error:
            raise error.with_traceback(None) from None

    chosen: Any = plain_rows if isgeneratorfunction(method) else plain
    result: Callable[_Arguments, _Result] = chosen
    return result

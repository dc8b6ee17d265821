"""Threads that watch over something: whoever relies on one is told when it dies.

A thread of Python that raises prints its traceback and is gone; those who wait for what it would
have done wait for ever.  So every thread that others rely on is made here, or hands what it meets
to whoever waits (as the log's writer and the callers of databases do).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from rewake.model.errors import RewakeError


def watcher(
    run: Callable[[], None], what: str, on_death: Callable[[str], None], *, name: str
) -> threading.Thread:
    """A thread that runs `run`; if that raises, `on_death` is told that `what` failed, and how."""

    def watching() -> None:
        try:
            run()
        except RewakeError as error:  # it says itself what happened; nobody needs a traceback
            on_death(f"{what} failed: {error}")
        except BaseException as error:
            on_death(f"{what} failed: {type(error).__name__}: {error}")
            raise

    return threading.Thread(target=watching, name=name, daemon=True)

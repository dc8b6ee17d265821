"""Opening logs by path: where identities are drawn and processes are named."""

import os
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TypeAlias

from rewake.log.files.descriptor import Descriptor, Metadata
from rewake.log.log import Log
from rewake.log.reading.reader import LogReader
from rewake.log.writing.pipeline import Limits, Mode
from rewake.stores.local import LocalStore
from rewake.stores.private import put_right
from rewake.stores.writer import LogWriter

__all__ = ["create_log", "local_stores", "open_log_reader", "open_log_writer"]

# A few milliseconds make batches that are worth a sync; whoever waits ends the rest at once.
_DEFAULTS = Limits(gather_ms=5.0)

PathLike: TypeAlias = str | os.PathLike[str]
Paths: TypeAlias = PathLike | Sequence[PathLike]


def create_log(paths: Paths, name: str, metadata: Metadata | None = None) -> Descriptor:
    """Create an empty log; the directories are made when they are missing."""
    log_id = secrets.randbits(63) + 1  # never 0, which a zeroed block would match
    with ExitStack() as stack:
        stores = local_stores(paths, create=True, stack=stack)
        return Log.create(stores, name, log_id=log_id, metadata=metadata)


def open_log_writer(
    paths: Paths,
    *,
    epoch: int | None = None,
    holder: str | None = None,
    mode: Mode = Mode.STABLE,
    limits: Limits | None = None,
    on_durable: Callable[[int], None] | None = None,
    tag: int | None = None,
    back_to: int | None = None,
) -> LogWriter:
    """Become the log's writer.  Without an epoch, only if nobody else is; with one, regardless.

    `tag` is for one who writes several logs as one; otherwise each gets one of its own.  With
    `back_to`, frames from that sequence on are taken back (see `Log.open_for_append`).
    """
    with ExitStack() as stack:
        stores = local_stores(paths, stack=stack)
        for store in stores:
            put_right(store.path)
        point = Log.open_for_append(
            stores,
            epoch=epoch,
            holder=holder or _process_name(),
            tag=new_tag() if tag is None else tag,
            back_to=back_to,
        )
        writer = LogWriter(
            stores, point, mode=mode, limits=limits or _DEFAULTS, on_durable=on_durable
        )
        stack.pop_all()  # the writer closes them from now on
        return writer


def new_tag() -> int:
    """What tells a writer from one of the same epoch in a copy of the log."""
    return secrets.randbits(32)


def open_log_reader(paths: Paths) -> LogReader:
    """A reader of all that is complete; close it to release its directories."""
    with ExitStack() as stack:
        reader = Log.open_reader(local_stores(paths, stack=stack))
        stack.pop_all()  # the reader closes them from now on
        return reader


def local_stores(paths: Paths, *, create: bool = False, stack: ExitStack) -> list[LocalStore]:
    """One store per directory, closed with the stack."""
    stores = []
    for path in (paths,) if isinstance(paths, str | os.PathLike) else paths:
        store = LocalStore(path, create=create)
        stack.callback(store.close)
        stores.append(store)
    return stores


def _process_name() -> str:
    return f"{os.getpid()}@{socket.gethostname()}"

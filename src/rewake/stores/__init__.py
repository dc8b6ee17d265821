"""Logs in real files: the only package that writes, syncs and locks.

    create_log(path, "clicks")
    with open_log_writer(path) as writer:
        sequence = writer.append(turn)
        writer.wait(sequence)
    with open_log_reader(path) as reader:
        for frame in reader.frames(from_position=0): ...

A path may be a list of paths: one directory per stripe, always in the same order.
"""

from rewake.stores.edge import create_log, open_log_reader, open_log_writer
from rewake.stores.local import LocalStore
from rewake.stores.writer import LogWriter

__all__ = ["LocalStore", "LogWriter", "create_log", "open_log_reader", "open_log_writer"]

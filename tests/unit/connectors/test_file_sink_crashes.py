"""A file sink that dies, finds no room, or is succeeded: nothing is lost, nothing is doubled."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from rewake.connectors.files.part_folder import PartFolder
from rewake.connectors.files.parts import read_parts
from rewake.connectors.files.sink import FileSink, FileSinkWriter
from rewake.model.errors import Fenced, StorageFault, StorageFull, WriterFailed
from rewake.model.stream_event import StreamEvent
from rewake.stores import LocalStore

SCHEMA = pa.schema([("n", pa.int64())])


def event(start: int, end: int, rows: int | None = None) -> StreamEvent:
    """The stretch from start to end; its tuples, at the last positions, hold their position."""
    rows = end - start if rows is None else rows
    numbers = pa.array(range(end - rows, end), pa.int64())
    batch = pa.RecordBatch.from_arrays([numbers], schema=SCHEMA)
    return StreamEvent(end - rows, batch, None, start)


def numbers(folder: Path) -> list[int]:
    return read_parts(folder)["n"].to_pylist()


class Died(BaseException):
    """The process is gone: nothing after it runs, no clean-up either."""


class Fault:
    """Something happens before the n-th step; with `error`, that step fails instead."""

    def __init__(self, at: int, error: Exception | None = None, only: str = "") -> None:
        self.at, self.error, self.only, self.seen = at, error, only, 0
        self.stores: list[LocalStore] = []

    def meet(self, step: str) -> None:
        if self.only and step != self.only:
            return
        self.seen += 1
        if self.seen == self.at:
            raise self.error or Died


class FaultyStore(LocalStore):
    """Real files; each step that changes something meets its fault first."""

    def __init__(self, path: Path, fault: Fault) -> None:
        fault.meet("open")
        self.fault = fault
        super().__init__(path, create=True)
        fault.stores.append(self)

    def create(self, name: str, data: bytes) -> None:
        self.fault.meet("create")
        super().create(name, data)

    def write(self, name: str, offset: int, buffers) -> None:
        if self.fault.at == self.fault.seen + 1 and not self.fault.only:
            super().write(name, offset, [bytes(each)[: len(each) // 2] for each in buffers])
        self.fault.meet("write")
        super().write(name, offset, buffers)

    def sync(self, name: str) -> None:
        self.fault.meet("sync")
        super().sync(name)

    def sync_directory(self) -> None:
        self.fault.meet("sync_directory")
        super().sync_directory()

    def delete(self, name: str) -> None:
        self.fault.meet("delete")
        super().delete(name)


class FaultyFolder(PartFolder):
    def __init__(self, path: Path, fault: Fault) -> None:
        self.fault = fault
        super().__init__(path, lambda each: FaultyStore(each, fault))

    def _move(self, old: Path, new: Path) -> None:
        self.fault.meet("move")
        super()._move(old, new)

    def close(self) -> None:
        if not isinstance(sys.exc_info()[1], Died):
            super().close()


def faulty_writer(folder: Path, fault: Fault) -> FileSinkWriter:
    return FileSinkWriter(FaultyFolder(folder, fault), SCHEMA, "parquet")


def run(writer: FileSinkWriter, until: int) -> None:
    """Two channels, a commit every ten positions; channel 1 has tuples at every third commit."""
    for start in range(0, until, 5):
        for channel in (0, 1):
            rows = 0 if channel and start // 10 % 3 else 5
            writer.write(channel, event(start, start + 5, rows))
        if start % 10:
            writer.commit()
    writer.commit()


def expected_numbers(until: int) -> list[int]:
    return [*range(until), *(n for n in range(until) if n // 10 % 3 == 0)]


def test_killed_at_every_step_nothing_is_lost_or_twice(tmp_path: Path) -> None:
    """The successor clears up, goes on from what is there, and is killed in turn at its step."""
    second = expected_numbers(40)[40:]
    whole = [[*range(a), *second[:b]] for a in range(0, 41, 10) for b in range(0, 21, 10)]
    step, killed = 0, True
    while killed:
        step += 1
        folder = tmp_path / str(step)
        FileSink(folder).open(0, 1, SCHEMA).close()
        killed = is_killed(folder, Fault(step))
        assert numbers(folder) in whole  # a reader sees whole commits of each channel
        is_killed(folder, Fault(step // 2 + 1))
        assert numbers(folder) in whole
        writer = FileSink(folder).open(0, 1, SCHEMA)
        assert len([name for name in os.listdir(folder) if name.startswith(".drafts")]) == 1
        run(writer, 60)
        assert (writer.position(0), writer.position(1)) == (60, 60)
        writer.close()
        assert not [name for name in os.listdir(folder) if name.startswith(".drafts")]
        assert numbers(folder) == expected_numbers(60)
    assert step > 40


def is_killed(folder: Path, fault: Fault) -> bool:
    """Run a writer that dies at its step; whether it came to that."""
    try:
        run(faulty_writer(folder, fault), 40)
    except Died:
        return True
    finally:
        for store in fault.stores:
            LocalStore.close(store)
    return False


def test_killed_at_every_step_tuples_never_come_before_where_they_are_from(tmp_path: Path) -> None:
    """The second writer's tuples are from another log: nobody finds them under the first one's."""
    step, killed = 0, True
    while killed:
        step += 1
        folder = tmp_path / str(step)
        first = FileSink(folder).open(0, 1, SCHEMA)
        bind_and_write(first, "first", 0)
        first.close()
        fault = Fault(step)
        try:
            bind_and_write(faulty_writer(folder, fault), "second", 10)
            killed = False
        except Died:
            killed = True
        finally:
            for store in fault.stores:
                LocalStore.close(store)
        found = FileSink(folder).look(0, 1)
        assert found.origins is not None
        assert (found.positions, found.origins["log"]) in (
            ({0: 10}, "first"),
            ({0: 10}, "second"),
            ({0: 20}, "second"),
        )
    assert found.positions == {0: 20}


def bind_and_write(writer: FileSinkWriter, log: str, start: int) -> None:
    writer.bind({"log": log})
    writer.write(0, event(start, start + 10))
    writer.commit()


def test_where_tuples_are_from_costs_syncs_once_and_not_for_every_commit(tmp_path: Path) -> None:
    """A commit syncs its file and the folder, whether or not the sink is bound."""
    FileSink(tmp_path).open(0, 1, SCHEMA).close()
    counted = Fault(0)
    writer = FileSinkWriter(CountingFolder(tmp_path, counted), SCHEMA, "parquet")
    seen = []
    for start in range(0, 40, 10):
        before = counted.seen
        bind_and_write(writer, "the same", start)
        seen.append(counted.seen - before)
    writer.close()
    assert seen == [4, 2, 2, 2]


class CountingFolder(PartFolder):
    """Counts syncs of files and of the folder."""

    def __init__(self, path: Path, counted: Fault) -> None:
        self.counted = counted
        super().__init__(path)

    def draft(self, name: str, data: bytes) -> None:
        self.counted.meet("sync")
        super().draft(name, data)

    def settle(self) -> None:
        self.counted.meet("sync_directory")
        super().settle()


def test_without_room_nothing_is_lost(tmp_path: Path) -> None:
    """At any creation or move; what came meanwhile is committed too, when there is room."""
    for only in ("create", "move"):
        for at in range(1, 9):
            folder = tmp_path / f"{only}-{at}"
            FileSink(folder).open(0, 1, SCHEMA).close()
            writer = faulty_writer(folder, Fault(at, StorageFull("no room"), only))
            refused = 0
            for start in range(0, 40, 10):
                for channel in (0, 1):
                    writer.write(channel, event(start, start + 10))
                try:
                    writer.commit()
                except StorageFull:
                    refused += 1
            writer.commit()
            writer.close()
            assert refused == 1
            assert numbers(folder) == [*range(40), *range(40)]


def test_after_a_failed_sync_the_writer_is_of_no_use(tmp_path: Path) -> None:
    """Nobody can tell what is durable; its successor makes it so."""
    FileSink(tmp_path).open(0, 1, SCHEMA).close()
    for only, kept in (("sync", 0), ("sync_directory", 10)):
        # Opening syncs the folder once, too.
        fault = Fault(2 if only == "sync_directory" else 1, StorageFault("cannot sync"), only)
        writer = faulty_writer(tmp_path, fault)
        writer.write(0, event(0, 10))
        with pytest.raises(StorageFault, match="cannot sync"):
            writer.commit()
        for use in (writer.commit, lambda writer=writer: writer.write(0, event(10, 20))):
            with pytest.raises(WriterFailed, match="cannot sync"):
                use()
        writer.close()
        successor = FileSink(tmp_path).open(0, 1, SCHEMA)
        assert successor.position(0) == kept
        successor.close()


def test_a_writer_that_was_succeeded_is_fenced(tmp_path: Path) -> None:
    """Wherever it slept: none of its files appears after its successor has looked."""
    for asleep_at in range(1, 5):
        folder = tmp_path / str(asleep_at)
        FileSink(folder).open(0, 1, SCHEMA).close()
        successors: list[FileSinkWriter] = []

        class Sleep(Fault):
            def meet(self, _step: str, folder=folder, successors=successors) -> None:
                self.seen += 1
                if self.seen == self.at:
                    successors.append(FileSink(folder).open(0, 1, SCHEMA))

        sleep = Sleep(0)
        zombie = faulty_writer(folder, sleep)
        zombie.write(0, event(0, 10))
        sleep.at = sleep.seen + asleep_at  # create, write, sync, move
        with pytest.raises(Fenced):
            zombie.commit()
        with pytest.raises(WriterFailed):
            zombie.commit()
        zombie.close()
        (successor,) = successors
        assert successor.position(0) == 0
        successor.write(0, event(0, 7))
        successor.commit()
        successor.close()
        assert numbers(folder) == list(range(7))


CHILD = """
import sys
import pyarrow as pa
from rewake.connectors.files.sink import FileSink
from rewake.model.stream_event import StreamEvent

schema = pa.schema([("n", pa.int64())])
writer = FileSink(sys.argv[1], "csv").open(0, 1, schema)
at = writer.position(0)
while True:
    numbers = pa.array(range(at, at + 100), pa.int64())
    writer.write(0, StreamEvent(at, pa.RecordBatch.from_arrays([numbers], schema=schema)))
    at += 100
    writer.commit()
    print(at, flush=True)
"""


def test_a_real_kill_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    """A process is killed while it writes, twice; the files are whole and follow each other."""
    confirmed = 0
    for _ in range(2):
        command = [sys.executable, "-c", CHILD, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            for _ in range(20):
                confirmed = int(child.stdout.readline())
            child.send_signal(signal.SIGKILL)
        found = numbers(tmp_path)
        assert found == list(range(len(found)))
        assert len(found) >= confirmed
    marker = json.loads((tmp_path / "_rewake.json").read_text())
    assert (marker["format"], marker["columns"]) == ("csv", [["n", "int64"]])

"""Several producers on one entry, in processes of their own that are killed with the entry."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from drill_vocabulary import PATIENCE_SECONDS, until
from kill_table import fired

import rewake
from rewake import FileSink
from rewake.model.errors import OperatingFault, ProducerSuperseded, QueryFailed, UsageError
from rewake.net.clients.producer import Producer
from rewake.net.kill_points import Fault
from rewake.recovery.approach import approach_named

SCHEMA = pa.schema([("name", pa.string()), ("at", pa.int64())])
# Writes rows "name, position" up to a number of them, then says how far it was told.
PROGRAM = """
import sys
import pyarrow as pa
import rewake
folder, name, stop = sys.argv[1], sys.argv[2], int(sys.argv[3])
with rewake.produce(folder, "entry", name=name) as producer:
    print(producer.position, flush=True)
    while producer.position < stop:
        first = producer.position
        at = list(range(first, min(first + 20, stop)))
        producer.send(pa.record_batch({"name": [name] * len(at), "at": at}))
    producer.flush()
    print(producer.acknowledged, flush=True)
"""


def entered() -> Any:
    """What producers write, kept as it is."""
    query = rewake.Query("producers")
    query.entry("entry", SCHEMA).to_stream("entry")
    return query


def rows(name: str, first: int, last: int) -> pa.RecordBatch:
    """The tuples of a producer at these positions."""
    return pa.record_batch({"name": [name] * (last - first), "at": range(first, last)}, SCHEMA)


def positions(running: Any, count: int) -> dict[str, list[int]]:
    """The positions that are in the stream, by producer, once there are so many."""
    found: dict[str, list[int]] = {}
    with running.subscribe("entry") as subscription:
        while sum(map(len, found.values())) < count:
            event = subscription.read(PATIENCE_SECONDS)
            assert event is not None, f"no more than {found}"
            for row in event.batch.to_pylist():
                found.setdefault(row["name"], []).append(row["at"])
        assert subscription.read(0.3) is None, "more than was sent"
    return found


def send(producer: Producer, batch: pa.RecordBatch) -> None:
    """Send, and wait until it is durable."""
    producer.send(batch)
    producer.flush()


def kill_entry(running: Any, life: int) -> None:
    """As an accident would, and wait for the next one."""
    running.signal_node("entry")
    until(
        lambda: running.status()["entry"]["epoch"] > life and "entry" in running.running,
        PATIENCE_SECONDS,
    )


def test_two_producers_that_flush_in_turn_both_have_their_tuples_there(tmp_path: Path) -> None:
    """Each counts its own; a kill of the entry between them costs nobody anything."""
    with rewake.start_processes(entered(), tmp_path / "q") as running:
        running.await_start()
        with running.produce("entry", name="a") as a, running.produce("entry", name="b") as b:
            for step in range(5):
                for producer, name in ((a, "a"), (b, "b")):
                    producer.send(rows(name, 10 * step, 10 * step + 10))
                    if step == 2:
                        kill_entry(running, 1 if producer is a else 2)
                    producer.flush()
            assert (a.acknowledged, b.acknowledged) == (50, 50)
        assert positions(running, 100) == {"a": list(range(50)), "b": list(range(50))}


def test_a_superseded_producer_is_told(tmp_path: Path) -> None:
    """It takes nothing for durable that another wrote, and never goes on; also after a crash."""
    with rewake.start_processes(entered(), tmp_path / "q") as running:
        running.await_start()
        first = running.produce("entry")
        first.send(rows("first", 0, 10))
        first.flush()
        second: Producer = running.produce("entry")
        assert second.position == 10
        second.send(rows("second", 10, 20))
        second.flush()
        kill_entry(running, 1)
        with pytest.raises(ProducerSuperseded, match="before position 10 are durable"):
            send(first, rows("first", 10, 20))
        with pytest.raises(ProducerSuperseded):
            first.flush()
        assert first.acknowledged == 10
        second.send(rows("second", 20, 30))
        second.flush()
        assert positions(running, 30) == {
            "first": list(range(10)),
            "second": list(range(10, 30)),
        }
        first.close()
        second.close()


def test_producers_that_die_with_their_entry_are_continued(tmp_path: Path) -> None:
    """Three processes and the entry are killed again and again; each position is there once."""
    folder, stop = tmp_path / "q", 6_000
    with rewake.start_processes(entered(), folder) as running:
        running.await_start()

        def begin(name: str, until_position: int) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", PROGRAM, str(folder), name, str(until_position)]
            return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

        for life in range(1, 4):
            programs = [begin(name, stop) for name in "abc"]
            for each in programs:
                assert each.stdout is not None
                each.stdout.readline()  # it has begun
            kill_entry(running, life)
            for each in programs[: life % 3 + 1]:
                os.kill(each.pid, signal.SIGKILL)
            for each in programs[life % 3 + 1 :]:
                assert each.wait(PATIENCE_SECONDS) == 0
            for each in programs:
                each.wait(PATIENCE_SECONDS)
                assert each.stdout is not None
                each.stdout.close()
        for name in "abc":
            last = begin(name, stop)
            told = last.communicate(timeout=PATIENCE_SECONDS)[0].split()
            assert told[-1] == str(stop)
        assert positions(running, 3 * stop) == {name: list(range(stop)) for name in "abc"}


def test_an_end_that_was_flushed_outlives_the_entry(tmp_path: Path) -> None:
    """The query is over when all producers are, whoever dies and never comes back."""
    with rewake.start_processes(entered(), tmp_path / "q") as running:
        running.await_start()
        a, b = running.produce("entry", name="a"), running.produce("entry", name="b")
        a.send(rows("a", 0, 10))
        a.end()
        a.flush()
        a.close()
        kill_entry(running, 1)
        b.send(rows("b", 0, 10))
        b.end()
        b.flush()
        b.close()
        assert running.await_end(PATIENCE_SECONDS), running.status()


# Its entry dies, or falls asleep, when the end of its producers is durable and nobody knows yet.
DRIVER = """
import sys
sys.path.insert(0, sys.argv[2])
import rewake
from rewake.net.kill_points import Fault
from test_producers import entered
if __name__ == "__main__":
    faults = [Fault("entry", "channel.before_Confirm", action=sys.argv[3])]
    with rewake.start_processes(entered(), sys.argv[1], faults=faults) as running:
        running.await_start()
        print(running.status()["entry"]["pid"], flush=True)
        running.await_end()
        print("ended", flush=True)
        sys.stdin.read()
"""


@contextmanager
def driver_of(tmp_path: Path, action: str) -> Iterator[tuple[Any, int]]:
    """A process that runs the query in `tmp_path / "q"`, and the pid of its entry."""
    (tmp_path / "driver.py").write_text(DRIVER)
    here, folder = str(Path(__file__).parent), str(tmp_path / "q")
    command = [sys.executable, str(tmp_path / "driver.py"), folder, here, action]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        pid = int(driver.stdout.readline())
        try:
            yield driver, pid
        finally:
            driver.kill()
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_what_is_durable_is_known_also_when_the_driver_has_died(tmp_path: Path) -> None:
    """Its endpoint is still there, and nobody is behind it; the log is."""
    folder = tmp_path / "q"
    with driver_of(tmp_path, "kill") as (driver, _), rewake.produce(folder, "entry") as producer:
        producer.end()
        assert driver.stdout.readline() == "ended\n"
        driver.kill()
        driver.wait()
        producer.flush()
        assert fired(folder) == ["channel.before_Confirm"]
        assert (folder / "endpoint.json").exists()


def test_an_entry_that_sleeps_while_its_driver_dies_leaves_the_answer_to_its_log(
    tmp_path: Path,
) -> None:
    """It never hangs up, and nobody can say whether another has taken its place."""
    folder = tmp_path / "q"
    with driver_of(tmp_path, "pause") as (driver, _), rewake.produce(folder, "entry") as producer:
        producer.end()
        until(lambda: fired(folder) == ["channel.before_Confirm"])
        driver.kill()
        driver.wait()
        producer.flush()


@pytest.mark.parametrize("place", ["inside", "outside", "closed"])
def test_an_end_that_nobody_confirmed_is_found_in_the_log_of_a_query_that_is_over(
    tmp_path: Path, place: str
) -> None:
    """The entry dies with the end durable and unsaid, and has come to its own when one asks."""
    faults = [Fault("entry", "channel.before_Confirm")]
    folder = tmp_path / "q"
    with rewake.start_processes(entered(), folder, faults=faults) as running:
        running.await_start()
        inside = place == "inside"
        producer = running.produce("entry") if inside else rewake.produce(folder, "entry")
        producer.end()
        until(lambda: not running.active)
        if place != "closed":
            producer.flush()
    producer.flush()
    assert fired(folder) == ["channel.before_Confirm"]
    producer.close()


def test_a_producer_of_a_query_that_was_stopped_hears_what_is_not_confirmed(tmp_path: Path) -> None:
    """Not after patience; and whoever goes on under its name begins behind what is durable."""
    folder = tmp_path / "q"
    with rewake.start_processes(entered(), folder) as running:
        running.await_start()
        producer = running.produce("entry")
        send(producer, rows("a", 0, 10))
    producer.send(rows("a", 10, 20))
    with pytest.raises(OperatingFault, match="sent from position 10 on; run it again"):
        producer.flush()
    producer.close()
    with rewake.start_processes(entered(), folder) as running, running.produce("entry") as again:
        assert again.position == 10


def test_clients_hear_why_their_query_failed(tmp_path: Path) -> None:
    """At once, in the words of the node; a stream that was cut off does not pass for one at end."""
    query = rewake.Query("producers")
    query.entry("entry", SCHEMA).to_stream("entry").map(twice="at + at").to_stream("twice")
    with rewake.start_processes(query, tmp_path / "q") as running:
        running.await_start()
        with running.produce("entry") as producer, running.subscribe("entry") as subscription:
            send(producer, rows("a", 0, 10))
            assert subscription.read(PATIENCE_SECONDS) is not None
            producer.send(pa.record_batch({"name": ["a"], "at": [2**62]}, SCHEMA))
            until(lambda: not running.active)
            with pytest.raises(QueryFailed, match="overflow"):
                send(producer, rows("a", 0, 1))
            with pytest.raises(QueryFailed, match="overflow"):
                list(subscription)


def test_what_is_sent_arrives_also_when_nobody_flushes_after_a_crash(tmp_path: Path) -> None:
    """A producer of few tuples may never fill its window; each of them is to arrive."""
    with rewake.start_processes(entered(), tmp_path / "q") as running:
        running.await_start()
        with running.produce("entry") as producer:
            send(producer, rows("a", 0, 10))
            kill_entry(running, 1)

            def sends_on() -> bool:
                at = producer.position
                producer.send(rows("a", at, at + 1))
                return producer.acknowledged > 10

            until(sends_on)


@pytest.mark.parametrize("approach", ["amnesia", "cec"])
def test_an_entry_that_nobody_may_read_can_be_written(tmp_path: Path, approach: str) -> None:
    """Producers find it by its own name, whatever its node is called and keeps."""
    query = rewake.Query("producers", approach=approach_named(approach))
    entry = query.entry("entry", SCHEMA).filter("at >= 0", fragment="one")
    entry.to(FileSink(tmp_path / "out"))
    with rewake.start_processes(query, tmp_path / "q") as running:
        running.await_start()
        with running.produce("entry") as producer:
            send(producer, rows("a", 0, 10))
            producer.end()
            producer.flush()
        assert running.await_end(PATIENCE_SECONDS)
    assert rewake.read_parts(tmp_path / "out").num_rows == 10


def test_a_producer_under_a_name_that_has_ended_does_not_take_its_tuples_for_durable(
    tmp_path: Path,
) -> None:
    """The end in the log is another life's; nothing of this one is there."""
    with rewake.start_processes(entered(), tmp_path / "q") as running:
        running.await_start()
        with running.produce("entry", name="b") as other:
            with running.produce("entry", name="a") as first:
                first.send(rows("a", 0, 10))
                first.end()
                first.flush()
            with running.produce("entry", name="a") as second:
                assert second.position == 10
                other.end()
                other.flush()
                until(lambda: not running.active)
                with pytest.raises(OperatingFault):
                    send(second, rows("a", 10, 20))
                assert second.acknowledged == 10


def test_a_producer_stays_with_its_shard_of_an_entry(tmp_path: Path) -> None:
    """Also while that is down and another runs: positions are those of one node."""
    query = rewake.Query("producers")
    query.entry("entry", SCHEMA, shards=2).to_stream("entry")
    with rewake.start_processes(query, tmp_path / "q") as running:
        running.await_start()
        with running.produce("entry") as zero, running.produce("entry", shard=1) as one:
            send(zero, rows("a", 0, 3))
            send(one, rows("a", 0, 5))
            running.signal_node("entry-0")
            send(zero, rows("a", 3, 4))
            assert (zero.position, one.position) == (4, 5)
        with pytest.raises(UsageError, match="no entry 'entry' with a shard 2"):
            running.produce("entry", shard=2)


def test_a_producer_in_a_fork_is_refused_and_its_parent_goes_on(tmp_path: Path) -> None:
    """Both would have one name, one epoch and one connection, and take each other's tuples."""
    program = """
import os, sys
import pyarrow as pa
import rewake

with rewake.produce(sys.argv[1], "numbers", name="forked") as out:
    batch = pa.RecordBatch.from_pydict({"number": [1, 2, 3]})
    out.send(batch)
    out.flush()
    child = os.fork()
    if not child:
        for use in (lambda: out.send(batch), out.flush, out.end):
            try:
                use()
            except rewake.model.errors.UsageError as error:
                print("refused:", "a fork of it" in str(error), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    out.send(batch)
    out.flush()
    print("durable:", out.acknowledged, flush=True)
"""
    query = rewake.Query("forked")
    query.entry("numbers", pa.schema([("number", pa.int64())])).to_stream("kept")
    with rewake.start_processes(query, tmp_path) as running:
        running.await_start()
        command = [sys.executable, "-W", "ignore", "-c", "import rewake.model.errors" + program]
        said = subprocess.run(
            [*command, str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE_SECONDS,
            check=False,
        )  # fmt: skip
    assert said.stdout.split("\n")[:-1] == ["refused: True"] * 3 + ["durable: 6"], said.stderr

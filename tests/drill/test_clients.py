"""Clients of a running query: subscribers who come and go, producers who die."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from drill_queries import HIGHEST, ITEMS, WINDOW, entered
from drill_vocabulary import PATIENCE_SECONDS, Drill, Reader, until, verdict

import rewake
from rewake import ItemStream
from rewake.model.errors import OperatingFault, UsageError
from rewake.net.clients.client import Subscription
from rewake.net.clients.producer import Producer

STEP = 5_000


def test_a_late_subscriber_gets_the_past_and_then_the_present(tmp_path: Path) -> None:
    """Without a gap where the log ends and memory begins, and without a repeat."""
    with Drill(tmp_path) as drill:
        drill.flow(0.5)
        late = Reader(drill.running.subscribe("averages", name="late"))
        drill.let(0.8)
        until(lambda: late.rows > 0)
        drill.finish()
        until(lambda: late.ended)
        late.leave()
    drill.check()
    assert pa.Table.from_batches(late.batches).equals(drill.results())


def test_a_subscriber_by_folder_that_comes_after_the_end_reads_the_log(tmp_path: Path) -> None:
    """The driver is still there, its nodes are not; nobody is left waiting."""
    with Drill(tmp_path) as drill:
        drill.finish()
        until(lambda: not drill.running.running)
        late = Reader(rewake.subscribe(tmp_path / "query", "averages", name="late"))
        until(lambda: late.ended)
        late.leave()
    assert pa.Table.from_batches(late.batches).equals(drill.results())


def test_a_live_subscriber_whose_driver_has_left_gets_to_the_end(tmp_path: Path) -> None:
    """The folder says that all has been processed; so what is in the log is all."""
    with Drill(tmp_path) as drill:
        drill.flow(0.5)
        live = rewake.subscribe(tmp_path / "query", "averages", name="live")
        first = live.read(PATIENCE_SECONDS)
        drill.finish()
        drill.running.await_end()
    assert first is not None
    rest = [event.batch for event in live]
    live.close()
    assert pa.Table.from_batches([first.batch, *rest]).equals(drill.results())


def test_a_subscriber_whose_driver_was_stopped_hears_of_it(tmp_path: Path) -> None:
    """The stream has not come to its end: it goes on when the query is started again."""
    with Drill(tmp_path) as drill:
        drill.flow(0.5)
        live = rewake.subscribe(tmp_path / "query", "averages", name="live")
        assert live.read(PATIENCE_SECONDS) is not None
    with live, pytest.raises(OperatingFault):
        list(live)


def test_a_subscriber_begins_where_it_says(tmp_path: Path) -> None:
    """At what there is, at what comes, at a position or at a time: in the words of sources."""
    with Drill(tmp_path) as drill:
        drill.flow(0.5)
        until(lambda: drill.results().num_rows > 0)
        end = drill.results().num_rows
        latest = Reader(drill.running.subscribe("averages", begin="latest", name="latest"))
        whole = Reader(drill.running.subscribe("averages", begin="earliest", name="earliest"))
        some = Reader(drill.running.subscribe("averages", begin=7, name="some"))
        until(lambda: whole.rows >= end and some.rows > 0)
        with (
            pytest.raises(UsageError, match="no event time"),
            drill.running.subscribe("averages", begin="time 17") as timed,
        ):
            timed.read(PATIENCE_SECONDS)
        drill.finish()
        for reader in (latest, whole, some):
            until(lambda reader=reader: reader.ended)
            reader.leave()
        over = Reader(drill.running.subscribe("averages", begin="latest", name="over"))
        until(lambda: over.ended)
        over.leave()
    rows = drill.results()
    assert pa.Table.from_batches(whole.batches).equals(rows)
    assert pa.Table.from_batches(some.batches).equals(rows.slice(7))
    assert 0 < latest.rows <= rows.num_rows - end
    assert pa.Table.from_batches(latest.batches).equals(rows.slice(rows.num_rows - latest.rows))
    assert over.rows == 0


def test_a_source_that_follows_a_stream_ends_with_it(tmp_path: Path) -> None:
    """A query that reads what another writes comes to its end when that has, and not before."""
    with Drill(tmp_path) as drill:
        drill.flow(0.5)
        until(lambda: drill.results().num_rows > 0)
        query = rewake.Query("behind")
        followed = rewake.StreamSource(tmp_path / "query" / "nodes" / "averages")
        query.source("averages", followed).filter("item_id >= 0").to_stream("same")
        with rewake.start_processes(query, tmp_path / "behind") as behind:
            with behind.subscribe("same") as same:
                seen = [same.read(PATIENCE_SECONDS)]
                assert behind.active
                drill.finish()
                seen += list(same)
            assert behind.await_end(PATIENCE_SECONDS)
    found = pa.Table.from_batches([event.batch for event in seen if event is not None])
    assert found.equals(drill.results())


def test_a_stream_that_a_query_does_not_have_is_named(tmp_path: Path) -> None:
    """Before anybody connects, with those that there are."""
    with Drill(tmp_path), pytest.raises(UsageError, match=r"'average'; did you mean 'averages'"):
        rewake.subscribe(tmp_path / "query", "average")


def test_a_subscriber_without_a_folder_hears_that_the_query_is_over(tmp_path: Path) -> None:
    """It knows of no log, and no node will serve it again."""
    with Drill(tmp_path) as drill:
        drill.finish()
        until(lambda: not drill.running.running)
        schema = drill.results().schema
        with (
            Subscription(drill.running.endpoint, "averages", schema) as late,
            pytest.raises(OperatingFault, match=r"the query is over.*'averages'.*log"),
        ):
            late.read(PATIENCE_SECONDS)


def test_a_subscriber_that_returns_goes_on_where_it_was(tmp_path: Path) -> None:
    """Also when the node that serves it has died meanwhile."""
    with Drill(tmp_path) as drill:
        parts, position = [], 0
        for step in range(1, 5):
            reader = Reader(drill.running.subscribe("averages", begin=position, name="guest"))
            drill.flow(0.2 * step)
            until(lambda reader=reader: reader.rows > 0)
            position = reader.leave()
            parts += reader.batches
            if step % 2:
                drill.kill("averages")
                drill.back("averages", step // 2 + 2)
        reader = Reader(drill.running.subscribe("averages", begin=position, name="guest"))
        drill.finish()
        until(lambda: reader.ended)
        reader.leave()
    drill.check()
    found = verdict(pa.Table.from_batches(parts + reader.batches), drill.tuples)
    assert found.right, found


def test_a_position_that_no_log_has_is_an_error_of_the_client_alone(tmp_path: Path) -> None:
    """The query does not mind."""
    with Drill(tmp_path) as drill:
        drill.flow(0.3)
        confused = Reader(drill.running.subscribe("averages", begin=10**12, name="confused"))
        until(lambda: confused.error is not None)
        with pytest.raises(OperatingFault, match="cannot be read from position 1000000000000: "):
            confused.leave()
        drill.finish()
    drill.check()


# --- producers -----------------------------------------------------------------------------------


def send_from(producer: Producer, stop: int) -> None:
    """Send the items from where the producer stands."""
    stream = ItemStream(1, ITEMS)
    while producer.position < stop:
        first = producer.position
        producer.send(stream.batch(first, min(first + STEP, stop)))


@pytest.mark.parametrize("victims", [["entry"], ["entry", "averages"]], ids="+".join)
def test_a_producer_outlives_the_entry_that_it_sends_to(tmp_path: Path, victims: list[str]) -> None:
    """What was not durable is sent again; what was is not."""
    tuples = 100_000
    with Drill(tmp_path, entered(), tuples=tuples) as drill, drill.running.produce("entry") as out:
        send_from(out, 40_000)
        for life in (2, 3):
            drill.kill(*victims)
            send_from(out, 20_000 + 20_000 * life)
            for victim in victims:
                drill.back(victim, life)
        send_from(out, tuples)
        out.flush()
        assert out.acknowledged == out.position == tuples
        out.end()
        drill.finish()
    drill.check()


def test_a_producer_that_died_is_continued_by_another(tmp_path: Path) -> None:
    """It begins where all before is durable, so that a kill of the entry right then costs none."""
    tuples = 100_000
    with Drill(tmp_path, entered(), tuples=tuples) as drill:
        for step in range(1, 5):
            producer = drill.running.produce("entry")
            send_from(producer, 20_000 * step)
            producer.close()  # as a crash would: nothing is flushed
            another = drill.running.produce("entry")
            drill.kill("entry")
            send_from(another, 20_000 * step)
            another.flush()
            another.close()
            drill.back("entry", step + 1)
        with drill.running.produce("entry") as producer:
            send_from(producer, tuples)
            producer.flush()
            producer.end()
            drill.finish()
    drill.check()


def test_what_a_producer_sent_is_counted_once(tmp_path: Path) -> None:
    """All tuples of all windows, whoever died."""
    tuples = 50_000
    with Drill(tmp_path, entered(), tuples=tuples) as drill, drill.running.produce("entry") as out:
        send_from(out, tuples // 2)
        drill.kill("averages")
        send_from(out, tuples)
        out.end()
        drill.finish()
    items, prices, _ = ItemStream(1, ITEMS).batch(0, tuples).columns
    kept = items.to_numpy()[prices.to_numpy() <= HIGHEST]
    windows = np.bincount(kept, minlength=ITEMS) // WINDOW
    found = np.bincount(drill.results().column("item_id").to_numpy(), minlength=ITEMS)
    assert np.array_equal(windows, found)


def test_each_part_of_a_stream_that_is_divided_by_key_is_read_by_its_number(tmp_path: Path) -> None:
    """Live and from the log: one node has several parts, and their numbers are not its name's."""
    schema = pa.schema([("key", pa.int64())])
    query = rewake.Query("divided")
    orders = query.entry("orders", schema).to_stream("orders")
    counted = orders.aggregate(by="key", window=rewake.count_window(1), count=True, shards=4)
    counted.to_stream("counted")
    with rewake.start_processes(query, tmp_path / "query") as running:
        running.await_start()
        with running.produce("orders") as producer:
            producer.send(pa.record_batch([range(100)], schema))
            producer.flush()
            live = [keys_of(running.subscribe("orders", shard=each)) for each in range(4)]
            producer.end()
            producer.flush()
        assert running.await_end(PATIENCE_SECONDS)
        until(lambda: not running.running)
        past = [keys_of(running.subscribe("orders", shard=each)) for each in range(4)]
    assert live == past
    assert sorted(key for part in past for key in part) == list(range(100))
    assert all(past)


def keys_of(subscription: Subscription) -> list[int]:
    """What one part has, of tuples that were all sent at once."""
    with subscription:
        while (event := subscription.read(PATIENCE_SECONDS)) is not None:
            if event.batch.num_rows:
                return [int(each) for each in event.batch["key"].to_pylist()]
    return []

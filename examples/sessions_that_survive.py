"""Sessions on nodes, without Spark: one node is killed, and no session that it had open is lost."""

import pyarrow as pa
import pyarrow.compute as pc
from servers import arguments

import rewake

CLICKS = 40_000


def visits() -> rewake.Query:
    """Clicks of a user that are less than ten milliseconds apart are a visit."""
    query = rewake.Query("visits", recover_within="1s")
    stream = rewake.ItemStream(seed=1, items=500)
    clicks = query.source("clicks", rewake.ItemSource(stream, tuples=CLICKS, rate=20_000))
    sessions = clicks.aggregate(
        by="item_id",
        window=rewake.session_window("10ms"),
        time="item_time",
        count="item_price",
        name="sessions",
    )
    sessions.to_stream("sessions")
    return query


if __name__ == "__main__":  # the processes of nodes import this file, too
    folder = arguments(__doc__).folder
    with rewake.start_processes(visits(), f"{folder}/visits") as running:
        with running.subscribe("sessions") as results:
            seen = [results.read().batch]
            running.signal_node("sessions")  # kill -9
            seen += [event.batch for event in results]
        attempts = running.status()["sessions"]["epoch"]
    found = pa.Table.from_batches(seen)
    counted = pc.sum(found["count_item_price"]).as_py()
    print(f"{found.num_rows:,} visits with {counted:,} of {CLICKS:,} clicks, attempt {attempts}")

"""The contender "Bytewax": two processes, recovery on, operators as its users write them.

    python bytewax_program.py workload=count folder=... ...

A program of its own: its interpreter has bytewax and numpy, and no Rewake.  Each of two partitions
makes the whole item stream and keeps its half of the items, as two partitions of a topic would hold
them: so the tuples of an item stay in order.
"""

import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op  # type: ignore[import-not-found, unused-ignore]
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found, unused-ignore]
from bytewax.inputs import (  # type: ignore[import-not-found, unused-ignore]
    FixedPartitionedSource,
    StatefulSourcePartition,
)
from bytewax.operators.windowing import (  # type: ignore[import-not-found, unused-ignore]
    EventClock,
    TumblingWindower,
    fold_window,
)
from bytewax.outputs import (  # type: ignore[import-not-found, unused-ignore]
    DynamicSink,
    StatelessSinkPartition,
)
from bytewax.recovery import init_db_dir  # type: ignore[import-not-found, unused-ignore]
from item_columns import columns  # type: ignore[import-not-found, unused-ignore]

_PARTITIONS = 2
_PROCESSES = 2
_SNAPSHOT_SECONDS = 1
_BATCH = 1_000
_TELL_SECONDS = 0.2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WINDOW = timedelta(seconds=10)

Purchase = tuple[int, int]  # price, time in microseconds


def _say(line: str) -> None:
    # One write, because two processes share the pipe.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class ItemPartition(StatefulSourcePartition[tuple[str, Purchase], int]):  # type: ignore[misc, unused-ignore]
    """Half of the items; its state is a position."""

    def __init__(self, job: dict[str, str], number: int, position: int) -> None:
        self._job = job
        self._number = number
        self._position = position
        self._rate = float(job["rate"])
        self._origin_ms = 0.0
        self._taken_in = 0
        self._told = 0.0
        _say("@ready")

    def next_batch(self) -> list[tuple[str, Purchase]]:
        """The next tuples that are due."""
        stop = min(self._position + _BATCH, self._due())
        if stop <= self._position:
            return []
        job = self._job
        items, prices, times = columns(
            int(job["seed"]), int(job["ids"]), int(job["interval_us"]), self._position, stop
        )
        mine = items % _PARTITIONS == self._number
        self._position = stop
        self._tell(int(mine.sum()))
        mine_alone = (each[mine].tolist() for each in (items, prices, times))
        return [(str(item), (price, when)) for item, price, when in zip(*mine_alone, strict=True)]

    def _due(self) -> int:
        if not self._rate:
            return 2**62
        if not self._origin_ms:
            try:
                self._origin_ms = float(Path(self._job["folder"], "first-tuple-due-ms").read_text())
            except FileNotFoundError:
                return 0
        return int((time.time() * 1e3 - self._origin_ms) * self._rate / 1e3)

    def next_awake(self) -> datetime | None:
        """At once, or in a moment if nothing is due."""
        if self._due() > self._position:
            return None
        return datetime.now(UTC) + timedelta(milliseconds=5)

    def _tell(self, rows: int) -> None:
        self._taken_in += rows
        now = time.time()
        if now - self._told > _TELL_SECONDS:
            self._told = now
            _say(f"@rows/{self._number} {self._taken_in} {now * 1e3:.1f}")

    def snapshot(self) -> int:
        """Where to go on."""
        return self._position


class ItemSource(FixedPartitionedSource[tuple[str, Purchase], int]):  # type: ignore[misc, unused-ignore]
    """The item stream in two partitions."""

    def __init__(self, job: dict[str, str]) -> None:
        self._job = job

    def list_parts(self) -> list[str]:
        """By their number."""
        return [str(number) for number in range(_PARTITIONS)]

    def build_part(self, _step: str, part: str, position: int | None) -> ItemPartition:
        """From the beginning, or from where it was."""
        return ItemPartition(self._job, int(part), position or 0)


class _Told(StatelessSinkPartition[tuple[int, int, float]]):  # type: ignore[misc, unused-ignore]
    def __init__(self, watched: int) -> None:
        self._watched = watched

    def write_batch(self, results: list[tuple[int, int, float]]) -> None:
        found = [
            f"{item},{when},{average!r}" for item, when, average in results if item < self._watched
        ]
        if found:
            _say(f"@results {time.time() * 1e3:.1f} {' '.join(found)}")


class Tell(DynamicSink[tuple[int, int, float]]):  # type: ignore[misc, unused-ignore]
    """Tells the results of watched items and drops the others."""

    def __init__(self, watched: int) -> None:
        self._watched = watched

    def build(self, _step: str, _worker: int, _workers: int) -> _Told:
        """One for each worker."""
        return _Told(self._watched)


Open = tuple[int, int, int]  # tuples, sum of prices, time of the last


def _counted(state: Open | None, purchase: Purchase) -> tuple[Open | None, Any]:
    count, total, _ = state or (0, 0, 0)
    count, total, last = count + 1, total + purchase[0], purchase[1]
    if count == 10:
        return None, (last, total / count)
    return (count, total, last), None


def _running(state: Open | None, purchase: Purchase) -> tuple[Open | None, Any]:
    count, total, _ = state or (0, 0, 0)
    count, total, last = count + 1, total + purchase[0], purchase[1]
    return (count, total, last), (last, total / count)


def _windows(flow_items: Any) -> Any:
    clock = EventClock(
        ts_getter=lambda purchase: _EPOCH + timedelta(microseconds=purchase[1]),
        wait_for_system_duration=timedelta(0),
        # Otherwise time passes while the program is dead, and what comes after is late.
        now_getter=lambda: datetime(2030, 1, 1, tzinfo=UTC),
        # These times have long passed for the system: it would look at every key all the time.
        to_system_utc=lambda _close: None,
    )
    windower = TumblingWindower(align_to=_EPOCH, length=_WINDOW)

    def fold(state: tuple[int, int], purchase: Purchase) -> tuple[int, int]:
        return state[0] + 1, state[1] + purchase[0]

    def merge(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
        return one[0] + other[0], one[1] + other[1]

    folded = fold_window("averages", flow_items, clock, windower, lambda: (0, 0), fold, merge)

    def result(keyed: Any) -> tuple[int, int, float]:
        item, (window, (count, total)) = keyed
        return int(item), window * 10_000_000, total / count

    return op.map("results", folded.down, result)


def build(job: dict[str, str]) -> Any:
    """The dataflow."""
    flow = Dataflow("peers")
    items = op.input("items", flow, ItemSource(job))
    if job["workload"] == "time":
        results = _windows(items)
    else:
        step = _counted if job["workload"] == "count" else _running
        averages = op.stateful_map("averages", items, step)
        closed = op.filter("closed", averages, lambda keyed: keyed[1] is not None)
        results = op.map("results", closed, lambda keyed: (int(keyed[0]), *keyed[1]))
    op.output("tell", results, Tell(int(job["watched"])))
    return flow


def get_flow(*words: str) -> Any:
    """What `bytewax.run` calls."""
    return build(dict(word.split("=", 1) for word in words))


def main(words: list[str]) -> None:
    """Be the launcher of the processes; it dies with them."""
    job = dict(word.split("=", 1) for word in words)
    recovery = Path(job["folder"], "state")
    if not recovery.exists():
        recovery.mkdir(parents=True)
        init_db_dir(recovery, _PARTITIONS)
    quoted = ", ".join(repr(word) for word in words)
    flow = f"{Path(__file__).stem}:get_flow({quoted})"
    command = [
        sys.executable, "-m", "bytewax.testing", flow, "-p", str(_PROCESSES), "-w", "1",
        "-r", str(recovery), "-s", str(_SNAPSHOT_SECONDS), "-b", "0",
    ]  # fmt: skip
    sys.exit(subprocess.call(command, cwd=Path(__file__).parent))


if __name__ == "__main__":
    main(sys.argv[1:])

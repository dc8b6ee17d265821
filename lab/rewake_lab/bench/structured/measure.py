"""`rewake bench structured`: state inside Structured Streaming queries, ours beside Spark's own.

One Spark, one source, one sink, the same rows: only the way state is kept differs.  `rewake` and
all of Spark's state stores take turns, and it is measured against each of them; what is written for
fault tolerance, against RocksDB with its changelog, which writes the least.  Spark has no count
windows of its own, so these are compared with its Python state APIs, one call per item.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from rewake.operators.windows.specs import count_window, running_window
from rewake.spark.session import local_session
from rewake_lab.bench.rows import (
    Measured,
    Part,
    Progress,
    Row,
    alternate,
    measure,
    median_ratio,
)
from rewake_lab.bench.structured.contenders import (
    DEFAULT,
    HEADLINE,
    OURS,
    PER_KEY,
    Contender,
    medians,
    native,
    ours,
    per_key,
    scratch,
)
from rewake_lab.bench.structured.restart import SETTINGS, fill, first_batch_seconds
from rewake_lab.bench.structured.streams import stream_rows
from rewake_lab.spark.state import STATE_STORES

_FEW_IDS: Final = 100_000
_MANY_IDS: Final = 1_000_000
_LARGE: Final = 1_000_000
_MEDIUM: Final = 100_000
_SMALL: Final = 1_000
_SIZES: Final = (_LARGE, _MEDIUM, _SMALL)
_LONG_WINDOW: Final = 1_000
_WINDOW: Final = 10
_CORES: Final = 2
_RESTART_ROWS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured; `batches` of the large sizes and `small_batches` per stretch."""

    rounds: int = 6
    # Where what is measured differs by so much that chance does not matter, and takes long.
    few_rounds: int = 3
    # Of every contender, at first: a JVM that is not warm understates what runs in it.
    warm_batches: int = 6
    batches: int = 3
    small_batches: int = 20
    others: bool = True
    per_key_rows: int = 4_000
    per_key_batches: int = 2
    restarts: int = 5
    stream_rows: int = 8_000_000
    stream_rounds: int = 5


QUICK: Final = Scale(
    rounds=1,
    few_rounds=1,
    warm_batches=3,
    batches=2,
    small_batches=10,
    others=False,
    per_key_rows=1_000,
    per_key_batches=1,
    restarts=1,
    stream_rows=4_000_000,
    stream_rounds=2,
)


def run(folder: Path, progress: Progress, *, scale: Scale | None = None) -> Measured:
    """All figures."""
    scale = scale or Scale()
    progress("starting Spark")
    # Gone when Spark is: its stores go on writing to folders of queries that have ended.
    with scratch(folder) as own, _quiet_session(own) as session:
        bench = Bench(session, own, progress, scale)
        parts: list[Part] = [
            (f"running average over {_FEW_IDS:,} ids", bench.few_ids),
            (f"running average over {_MANY_IDS:,} ids", bench.many_ids),
            (f"count windows of {_WINDOW}", bench.count_windows),
            ("reading and writing streams",
             lambda: stream_rows(session, own, scale.stream_rows, scale.stream_rounds)),
        ]  # fmt: skip
        found = measure(parts, progress)
    # Other applications, with a Spark of their own.
    restarts = partial(_restarts, folder, progress, scale.restarts)
    return measure([("kill -9 of the whole application", restarts)], progress, found)


class Bench:
    """The figures that are taken on one session."""

    def __init__(self, session: Any, parent: Path, progress: Progress, scale: Scale) -> None:
        self._session = session
        self._parent = parent
        self._progress = progress
        self._scale = scale

    def few_ids(self) -> list[Row]:
        """Running averages over 100,000 ids, batches of all sizes, and what they write."""
        with scratch(self._parent) as folder:
            mine, theirs, others = self._running(folder, _FEW_IDS)
            targets = {_LARGE: ">= 1", _MEDIUM: ">= 1.5"}
            rows = self._all_sizes(mine, theirs, others, targets, self._scale.rounds)
            return rows + self._long_windows(folder, theirs)

    def many_ids(self) -> list[Row]:
        """The same over a million ids."""
        with scratch(self._parent) as folder:
            mine, theirs, others = self._running(folder, _MANY_IDS)
            targets = {_LARGE: ">= 2"}
            return self._all_sizes(mine, theirs, others, targets, self._scale.few_rounds)

    def _all_sizes(
        self,
        mine: Contender,
        theirs: Contender,
        others: Sequence[Contender],
        targets: Mapping[int, str],
        rounds: int,
    ) -> list[Row]:
        """Times of batches of all sizes, then what they wrote; `targets` are of throughputs."""
        speeds, sizes = [], []
        what = "running average" + _over(mine.ids)
        for size in _SIZES:
            target = targets.get(size, "")
            speeds += self._side_by_side(mine, theirs, others, size, target, rounds)
            sizes += bytes_written(mine, theirs, size, what, "<= 1")
        return speeds + sizes

    def _running(self, folder: Path, ids: int) -> tuple[Contender, Contender, Sequence[Contender]]:
        """Ours, Spark's best and Spark's others, warm, with state for about all ids."""
        self._progress(f"running average over {ids:,} ids: warming up")
        session = self._session
        mine = ours(session, folder / OURS, ids, running_window())
        theirs = native(session, folder / HEADLINE, ids)
        stores = [store for store in STATE_STORES if store != HEADLINE]
        others = [native(session, folder / store, ids, store) for store in stores]
        others = others if self._scale.others else []
        for contender in (mine, theirs, *others):
            contender.run(_LARGE, skip=2, count=self._scale.warm_batches - 2)
            contender.measured.clear()
            contender.appeared.clear()
        return mine, theirs, others

    def _side_by_side(
        self,
        mine: Contender,
        theirs: Contender,
        others: Sequence[Contender],
        size: int,
        target: str,
        rounds: int,
    ) -> list[Row]:
        """Time per batch of this size; all take turns."""
        about = f"running average, {mine.ids:,} ids, {size:,}-row batches"
        self._progress(about)
        scale = self._scale
        skip = {_LARGE: 1, _MEDIUM: 2, _SMALL: 5}[size]
        counts = {_LARGE: scale.batches, _MEDIUM: 2 * scale.batches, _SMALL: scale.small_batches}

        def stretch(contender: Contender) -> float:
            return contender.run(size, skip=skip, count=counts[size])

        contenders = [mine, theirs, *others]
        names = [contender.name for contender in contenders]
        runs = alternate([partial(stretch, each) for each in contenders], rounds)
        if size == _SMALL:
            return batch_times(size, mine.ids, names, runs)
        rows = [
            Row(f"{about}: {name}", size / 1e6 / seconds, "M rows/s")
            for name, seconds in zip(names, medians(runs), strict=True)
        ]
        for name, other in zip(names[1:], runs[1:], strict=True):
            ratio = median_ratio(other, runs[0])
            rows.append(Row(f"{about}: {OURS} / {name}", ratio, "ratio", target))
        return rows

    def _long_windows(self, folder: Path, theirs: Contender) -> list[Row]:
        """What windows of 1,000 tuples write, against what Spark writes for as many rows."""
        self._progress(f"count windows of {_LONG_WINDOW:,}: bytes written")
        window = count_window(_LONG_WINDOW)
        mine = ours(self._session, folder / "long", theirs.ids, window)
        rows = []
        for size, skip in ((_LARGE, 2), (_MEDIUM, 1), (_SMALL, 1)):
            mine.run(size, skip=skip, count=self._scale.batches * (3 if size == _SMALL else 1))
            name = f"count windows of {_LONG_WINDOW:,}"
            rows += bytes_written(mine, theirs, size, name, "<= 0.3333")
        return rows

    def count_windows(self) -> list[Row]:
        """Count windows of ten against Spark's Python state APIs, one call per item and batch."""
        self._progress(f"count windows of {_WINDOW}: {OURS}")
        about = f"count-{_WINDOW} windows"
        rows = []
        rates = {}
        for ids in (_FEW_IDS, _MANY_IDS):
            found = self._own_count_windows(ids)
            rates[ids] = found[_LARGE]
            rows += [
                Row(f"{about}, {ids:,} ids, {size:,}-row batches: {OURS}", rate / 1e6, "M rows/s")
                for size, rate in found.items()
            ]
        for api in PER_KEY:
            self._progress(f"{about}: {api}")
            for ids in (_FEW_IDS, _MANY_IDS):
                rows += self._per_key(about, api, ids, rates[ids])
            rows.append(self._amortised(about, api, rates[_FEW_IDS]))
        return rows

    def _own_count_windows(self, ids: int) -> dict[int, float]:
        """Rows per second of ours, by the size of batches."""
        scale = self._scale
        with scratch(self._parent) as folder:
            mine = ours(self._session, folder, ids, count_window(_WINDOW))
            return {
                size: size / mine.run(size, skip=skip, count=count)
                for size, skip, count in (
                    (_LARGE, 3, scale.batches),
                    (_MEDIUM, 1, scale.batches),
                    (_SMALL, 5, scale.small_batches),
                )
            }

    def _per_key(self, about: str, api: str, ids: int, rate: float) -> list[Row]:
        """As slow as they are, they get small batches."""
        size = self._scale.per_key_rows
        slow = self._per_key_rate(api, size, ids)
        return [
            Row(f"{about}, {ids:,} ids, {size:,}-row batches: {api}", slow, "rows/s"),
            Row(f"{about}{_over(ids)}: {OURS} / {api}", rate / slow, "ratio", ">= 200"),
        ]

    def _amortised(self, about: str, api: str, rate: float) -> Row:
        """The same when it has as many tuples per call as ours has."""
        size = self._scale.per_key_rows
        # In our batches every item has so many tuples on average.
        share = _LARGE // _FEW_IDS
        amortised = self._per_key_rate(api, size * share // 2, size // 2)
        name = f"{about}: {OURS} / {api}, {share} tuples per item and batch"
        return Row(name, rate / amortised, "ratio", note=f"over {size // 2:,} ids, state for few")

    def _per_key_rate(self, api: str, size: int, ids: int) -> float:
        with scratch(self._parent) as folder:
            contender = per_key(self._session, folder, ids, api, _WINDOW)
            return size / contender.run(size, skip=1, count=self._scale.per_key_batches)


def _over(ids: int) -> str:
    """In the name of a figure: most are over few ids."""
    return "" if ids == _FEW_IDS else f", {ids:,} ids"


def batch_times(
    size: int, ids: int, names: Sequence[str], runs: Sequence[Sequence[float]]
) -> list[Row]:
    """Rows of the table: the median of each one's batches, and ours against theirs."""
    about = f"time per {size:,}-row batch{_over(ids)}"
    rows = [
        Row(f"{about}: {name}", seconds * 1e3, "ms", note=f"running average, {ids:,} ids")
        for name, seconds in zip(names, medians(runs), strict=True)
    ]
    return rows + _against(about, names, runs)


def _against(about: str, names: Sequence[str], runs: Sequence[Sequence[float]]) -> list[Row]:
    """The first one's times / each other's; it should take no longer than any."""
    return [
        Row(f"{about}: {names[0]} / {name}", median_ratio(runs[0], other), "ratio", "<= 1")
        for name, other in zip(names[1:], runs[1:], strict=True)
    ]


def bytes_written(
    mine: Contender, theirs: Contender, size: int, what: str, target: str
) -> list[Row]:
    """Rows of the table: what each writes for fault tolerance in a batch, and the ratio."""
    about = f"bytes for fault tolerance, {what}, {size:,}-row batch"
    less, more = mine.bytes_per_batch(size), theirs.everything_per_batch(size)
    changes, found = theirs.bytes_per_batch(size), theirs.appeared[size]
    parts = f"{found.batches} batches, {found.snapshot_files} files of snapshots"
    return [
        Row(f"{about}: {OURS}", less, "bytes", note="frames appended to the shards' logs"),
        Row(f"{about}: {HEADLINE}", more, "bytes", note=f"running average; {parts}"),
        Row(f"{about}: {HEADLINE}, changelog alone", changes, "bytes"),
        Row(f"{about}: {OURS} / {HEADLINE}", less / more, "ratio", target),
    ]  # fmt: skip


def _restarts(parent: Path, progress: Progress, rounds: int) -> list[Row]:
    """The first batch after kill -9 of the whole application, with 100,000 ids of state."""
    with scratch(parent) as folder:
        kinds = (OURS, HEADLINE, DEFAULT)
        for kind in kinds:
            progress(f"kill -9 of the whole application: {kind}, first run")
            fill(kind, folder / kind, _RESTART_ROWS, _FEW_IDS)

        def restart(kind: str) -> float:
            progress(f"kill -9 of the whole application: {kind}, restart")
            return first_batch_seconds(kind, folder / kind, _RESTART_ROWS, _FEW_IDS)

        runs = alternate([partial(restart, kind) for kind in kinds], rounds)
    about = "first batch after kill -9 of the application"
    note = f"{_FEW_IDS:,} ids of state, {_RESTART_ROWS:,}-row batch, {rounds} kills"
    rows = [
        Row(f"{about}: {kind}", seconds, "s", note=note)
        for kind, seconds in zip(kinds, medians(runs), strict=True)
    ]
    return rows + _against(about, kinds, runs)


@contextmanager
def _quiet_session(parent: Path) -> Iterator[Any]:
    """A session whose processes write on a file what they would write on stderr.

    A query that is stopped in the middle of a batch has its Python workers say so, each with a
    traceback; what goes wrong for good is raised.
    """
    with tempfile.TemporaryFile(dir=parent) as said:
        kept = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            session = local_session(cores=_CORES, conf=SETTINGS)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        try:
            yield session
        finally:
            session.stop()

"""Files of numbers that queries write into streams, and what is in a stream then."""

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa

from rewake.connectors.streams.source import StreamSource

# Copies of tasks as soon as one is much slower than others.
EAGER_COPIES = {
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    # A copy needs a second executor, so both must be there from the beginning.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.task.duration.threshold": "2s",
}


def table(path: Path) -> pa.Table:
    """All rows of a stream, shard by shard."""
    source = StreamSource(path, follow=False)
    batches = []
    for shard in range(len(source.shards)):
        reader = source.open(shard, len(source.shards))
        while (event := reader.read(0.0)) is not None:
            batches.append(event.batch)
        reader.close()
    return pa.Table.from_batches(batches, source.schema)


def numbers(path: Path) -> Counter[int]:
    """How often each value is there."""
    return Counter(table(path)["value"].to_pylist())


def staged(path: Path) -> list[str]:
    names = os.listdir(path / "staging")
    return [name for name in names if name.startswith(("stage-", "commit-"))]


def source_files(folder: Path, *files: range) -> None:
    """Text files of numbers for the file source, each of which is a batch of its own."""
    folder.mkdir(exist_ok=True)
    for number, values in enumerate(files, len(list(folder.iterdir()))):
        draft = folder.parent / f"draft-{number}"
        draft.write_text("".join(f"{value}\n" for value in values))
        moment = 1_700_000_000 + number
        os.utime(draft, (moment, moment))
        draft.rename(folder / f"{number:03d}.txt")

"""Every recovery of a node with a promised time: what it took beside what had been predicted.

    <folder>/recoveries/<node>.jsonl    one line a recovery, oldest first

Kept by the node itself, so that it is there whether or not anybody watched: of a drill, of a crash,
of a driver that was started again.  The prediction is the one that the life before had kept last
(at most half a second before its end); what it took is counted from the moment at which the new
process asked for its epoch until its replay was over, which is all that a promise is about.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rewake.stores.private import FOLDER_MODE, private_opener

__all__ = ["KeptRecovery", "keep_recovery", "kept_recoveries"]

_FOLDER: Final = "recoveries"


@dataclass(frozen=True, slots=True)
class KeptRecovery:
    """When (seconds since 1970), in which life, and what it took; times beyond the restart, in ms.

    `predicted_ms` is None where the life before ended too soon to have kept one.
    """

    at: float
    epoch: int
    target_ms: float
    predicted_ms: float | None
    achieved_ms: float
    load_ms: float
    replay_ms: float
    records: int
    tuples: int

    @property
    def within(self) -> bool:
        """Whether the promise was kept."""
        return self.achieved_ms <= self.target_ms


def keep_recovery(folder: Path, node: str, recovery: KeptRecovery) -> None:
    """Add a line; a measurement is not worth failing for: without room there is none."""
    path = folder / _FOLDER / f"{node}.jsonl"
    with suppress(OSError):
        path.parent.mkdir(FOLDER_MODE, exist_ok=True)
        with open(path, "a", encoding="utf-8", opener=private_opener) as file:
            file.write(json.dumps(asdict(recovery)) + "\n")


def kept_recoveries(folder: Path, node: str) -> list[KeptRecovery]:
    """All that can be read, oldest first: a line that was cut off by a crash is none."""
    try:
        lines = (folder / _FOLDER / f"{node}.jsonl").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    return list(_read(lines))


def _read(lines: list[str]) -> Iterator[KeptRecovery]:
    for line in lines:
        with suppress(ValueError, TypeError):
            yield KeptRecovery(**json.loads(line))

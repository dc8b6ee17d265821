"""Printing the eventual checkpoint that a log holds."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rewake.cli.inspect.rendering import bytes_text, described, print_facts, wide_console
from rewake.inspection.checkpoint import CheckpointInspection

__all__ = ["checkpoint_object", "print_checkpoint"]

_LONGEST_BAR = 40


def checkpoint_object(found: CheckpointInspection) -> dict[str, Any]:
    """The inspection for a program."""
    checkpoint = found.checkpoint
    report: dict[str, Any] = {"name": found.name, "frames": found.frames}
    if checkpoint is None:
        return report | {"windows": 0, "checkpoint": None}
    return report | {
        "windows": checkpoint.windows,
        "from_open": int(checkpoint.openings.ids.size),
        "from_check": int(checkpoint.snapshots.ids.size),
        "time": checkpoint.time,
        "oldest_time": checkpoint.oldest_time,
        "clock": found.clock,
        "late_tuples": checkpoint.late_tuples,
        "extent": asdict(found.extent),
        "tuples_to_replay": checkpoint.tuples_to_replay,
        "replay_from": checkpoint.oldest_time + 1,
        "ages": [asdict(group) for group in found.ages],
        "oldest": [asdict(window) for window in found.oldest],
    }


def print_checkpoint(found: CheckpointInspection) -> None:
    """The inspection for people: facts, how old footprints are, the oldest windows."""
    console = wide_console()
    if found.checkpoint is None:
        console.print(Text(f"The log {found.name} is empty: a recovery would start from nothing."))
        return
    print_facts(console, _facts(found))
    if found.ages:
        console.print("\nHow long ago the windows left their footprints, in input tuples")
        _print_ages(console, found)
    if found.oldest:
        console.print("\nThe oldest footprints")
        _print_oldest(console, found)


def _facts(found: CheckpointInspection) -> Iterator[tuple[str, str]]:
    checkpoint, extent = found.checkpoint, found.extent
    assert checkpoint is not None
    opened, checked = checkpoint.openings.ids.size, checkpoint.snapshots.ids.size
    yield "log", f"{found.name}, {found.frames:,} frames"
    if found.made.spec is not None:
        yield "operator", described(found.made.spec)
    yield (
        "open windows",
        f"{checkpoint.windows:,} (N): {opened:,} from OPEN, {checked:,} from CHECK",
    )
    yield "log ends at", f"input position {checkpoint.time:,} (tc)"
    yield "oldest", f"footprint at {checkpoint.oldest_time:,} (T)"
    if found.clock is not None:
        yield "event time", str(found.clock)
    yield "late tuples", f"{checkpoint.late_tuples:,}"
    records = f"{extent.records:,} records in the last {extent.frames:,} frames"
    yield "extent", f"{records}, {bytes_text(extent.bytes)}"
    start, tuples = checkpoint.oldest_time + 1, checkpoint.tuples_to_replay
    replay = f"{tuples:,} tuples (u), from position {start:,}" if tuples else "nothing"
    yield "to replay", replay


def _print_ages(console: Console, found: CheckpointInspection) -> None:
    most = max(group.windows for group in found.ages)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for group in found.ages:
        # Every group with a window in it is seen, however few.
        length = -(-group.windows * _LONGEST_BAR // most)
        ages = f"{group.youngest:,} to {group.oldest - 1:,}"
        table.add_row(ages, f"{group.windows:,}", Text("█" * length, "cyan"))
    console.print(table)


def _print_oldest(console: Console, found: CheckpointInspection) -> None:
    keyed = any(window.key is not None for window in found.oldest)
    table = Table(box=None, pad_edge=False)
    for name in ("opened by tuple", "footprint", "at", "age"):
        table.add_column(name, justify="right", no_wrap=True)
    if keyed:
        table.add_column("key", overflow="fold")
    for window in found.oldest:
        key = ", ".join(f"{name}={value}" for name, value in (window.key or {}).items())
        row = [f"{window.id:,}", window.kind, f"{window.footprint_time:,}", f"{window.age:,}"]
        table.add_row(*row, *([Text(key)] if keyed else []))
    console.print(table)
    assert found.checkpoint is not None
    if len(found.oldest) < found.checkpoint.windows:
        shown = f"{len(found.oldest)} of {found.checkpoint.windows:,} windows"
        console.print(f"{shown}; --windows N shows more", style="dim")

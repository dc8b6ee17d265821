"""Printing what a log holds."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rewake.cli.inspect.rendering import bytes_text, described, print_facts, wide_console
from rewake.inspection.log import FORMAT_VERSION, FrameFacts, LogInspection
from rewake.log.files.layout import segment_id

__all__ = ["log_object", "print_log"]

_ROWS_OF_A_FRAME = 5
# Narrower terminals get the columns without which a row says nothing.
_ENOUGH_FOR_ALL = 108


def log_object(found: LogInspection) -> dict[str, Any]:
    """The inspection for a program."""
    report, descriptor = found.report, found.report.descriptor
    damage = asdict(report.damage) if report.damage else None
    if damage is not None:
        damage |= {
            "frames_before": report.end_sequence - report.first_sequence,
            "frames_after": report.readable_after,
        }
    return {
        "ok": report.intact,
        "name": descriptor.name if descriptor else None,
        "log_id": f"{descriptor.log_id:016x}" if descriptor else None,
        "format_version": FORMAT_VERSION,
        "stripes": descriptor.stripes if descriptor else len(found.paths),
        "epoch": found.epoch,
        "first_sequence": report.first_sequence,
        "end_sequence": report.end_sequence,
        "durable": report.durable,
        "bytes": report.bytes,
        "torn_bytes": report.torn_bytes,
        "extent": asdict(found.extent),
        "operator": found.made.spec.describe() if found.made.spec else None,
        "damage": damage,
        "segments": [asdict(segment) for segment in report.segments],
        "frames": [asdict(frame) for frame in found.frames],
    }


def print_log(found: LogInspection) -> None:
    """The inspection for people: facts, damage, frames."""
    console = wide_console()
    print_facts(console, _facts(found))
    if found.report.damage is not None:
        _print_damage(console, found)
    if not found.frames:
        console.print("\nNo frames to show.")
        return
    console.print()
    _print_frames(console, found)
    for frame in found.frames:
        if frame.sections:
            _print_sections(console, frame)


def _facts(found: LogInspection) -> Iterator[tuple[str, str]]:
    report, descriptor = found.report, found.report.descriptor
    if descriptor is not None:
        yield "log", f"{descriptor.name} (id {descriptor.log_id:016x}, format {FORMAT_VERSION})"
        if found.made.spec is not None:
            yield "operator", described(found.made.spec)
    stripes = f" in {len(found.paths)} stripes" if len(found.paths) > 1 else ""
    yield "size", f"{report.frames:,} frames, {bytes_text(report.bytes)}{stripes}"
    yield "segments", f"{len(report.segments)}{_dead(found)}"
    yield "writer", f"epoch {found.epoch}" if found.epoch >= 0 else "none so far"
    if report.frames:
        end = report.end_sequence - 1
        yield "sequences", f"{report.first_sequence:,} to {end:,} without a gap"
        yield "durable", f"{report.durable:,} frames, as far as the log itself can prove"
    if report.torn_bytes and report.intact:
        yield "torn", f"{bytes_text(report.torn_bytes)} behind the end: cut off, or being written"
    elif report.torn_bytes:
        yield "unreadable", f"{bytes_text(report.torn_bytes)} that are no whole frame"
    yield "extent", _extent(found)
    yield "checksums", "every one is right" if report.intact else "NOT all right"


def _dead(found: LogInspection) -> str:
    dead = sum(not segment.live for segment in found.report.segments)
    return f", {dead} of them dead" if dead else ""


def _extent(found: LogInspection) -> str:
    extent = found.extent
    if extent.reason:
        return f"unknown: {extent.reason}" if found.report.intact else "unknown: damaged, see below"
    if not extent.frames:
        return "nothing: the log is empty"
    return (
        f"recovery reads the last {extent.frames:,} frames "
        f"({extent.records:,} records, {bytes_text(extent.bytes)})"
    )


def _print_damage(console: Console, found: LogInspection) -> None:
    console.print("\nThe log is damaged.", style="bold red")
    for line in _damage_lines(found):
        console.print(Text(f"  {line}"), soft_wrap=True)


def _damage_lines(found: LogInspection) -> Iterator[str]:
    """Where it is, what can be saved, what to do."""
    report, damage = found.report, found.report.damage
    assert damage is not None
    place = found.path_of(damage.segment)
    yield f"what      {damage.reason}"
    if place is not None:
        yield f"where     {place}"
    if damage.offset >= 0:
        yield f"          byte {damage.offset:,}"
    if damage.sequence >= 0:
        yield f"          sequence {damage.sequence:,}"
    yield f"before    {report.end_sequence - report.first_sequence:,} frames are whole"
    yield f"after     {report.readable_after:,} frames are whole"
    yield f"reading   from the start stops with an error at sequence {report.end_sequence:,}"
    if found.extent.reason:
        yield "recovery  is refused: it needs what is damaged"
    else:
        yield f"recovery  works: the last {found.extent.frames:,} frames, all it needs, are whole"
    lost = place.name if place else "what is missing"
    yield f"what now  restore {lost} from a copy, then inspect again; nothing was changed"


_Column = tuple[str, Callable[[FrameFacts], str]]


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _segment(frame: FrameFacts) -> str:
    """A segment by its first sequence and epoch: its name without the zeros."""
    segment = segment_id(frame.segment)
    return f"{segment.first_sequence}-{segment.epoch}" if segment else frame.segment


_NEEDED: list[_Column] = [
    ("sequence", lambda frame: _number(frame.sequence)),
    ("position", lambda frame: _number(frame.position)),
    ("t_end", lambda frame: _number(frame.t_end)),
    ("N open", lambda frame: _number(frame.open_windows)),
    ("OPEN", lambda frame: _number(frame.opens)),
    ("CHECK", lambda frame: _number(frame.checks)),
    ("RESULT", lambda frame: _number(frame.tuples)),
    ("bytes", lambda frame: _number(frame.bytes)),
]
_WELCOME: list[_Column] = [
    ("timestamp", lambda frame: "-" if frame.timestamp is None else str(frame.timestamp)),
    ("epoch", lambda frame: str(frame.epoch)),
    ("segment", _segment),
    ("offset", lambda frame: _number(frame.offset)),
]


def _print_frames(console: Console, found: LogInspection) -> None:
    roomy = console.width >= _ENOUGH_FOR_ALL
    columns = _NEEDED + _WELCOME if roomy else _NEEDED
    table = Table(box=None, pad_edge=False)
    for name, _ in columns:
        table.add_column(name, justify="right", no_wrap=True)
    last = -1
    for frame in found.frames:
        if last >= 0 and frame.sequence != last + 1:
            table.add_row(Text(f"{frame.sequence - last - 1} missing", "bold red"))
        table.add_row(*(text(frame) for _, text in columns))
        last = frame.sequence
    console.print(table)
    shown, total = len(found.frames), found.report.frames
    if shown < total:
        console.print(
            f"{shown} of {total:,} frames; --last N and --from SEQ show others", style="dim"
        )
    if not roomy:
        console.print(
            "a wider terminal also shows timestamp, epoch, segment and offset", style="dim"
        )


def _print_sections(console: Console, frame: FrameFacts) -> None:
    console.print(f"\nframe {frame.sequence:,}", style="bold")
    for section in frame.sections:
        output = f" of output {section.output}" if section.output else ""
        console.print(f"  {section.kind}{output}, {bytes_text(section.bytes)}")
        for row in (section.rows or [])[:_ROWS_OF_A_FRAME]:
            text = "  ".join(f"{name}={value}" for name, value in row.items())
            console.print(Text(f"    {text}"), soft_wrap=True)
        more = len(section.rows or []) - _ROWS_OF_A_FRAME
        if more > 0:
            console.print(f"    and {more:,} more; --json shows all", style="dim")

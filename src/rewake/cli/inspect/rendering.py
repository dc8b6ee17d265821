"""What both inspections print alike: facts in two columns, and wide tables."""

import os
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.windows.specs import CountWindow, RunningWindow, SessionWindow

__all__ = ["bytes_text", "described", "print_facts", "wide_console"]

# Of a pipe or a file nobody knows how wide it is; a row is best kept on one line there.
_WIDTH_OF_A_FILE = 140


def wide_console() -> Console:
    """A console that does not fold tables when its output goes to a file."""
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        return Console(highlight=False, width=_WIDTH_OF_A_FILE)
    return console


def print_facts(console: Console, facts: Iterable[tuple[str, str]]) -> None:
    """Names and values.  Text, never markup: a name may hold brackets."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, Text(value))
    console.print(table)


def bytes_text(count: int) -> str:
    """A size as people say it."""
    if count < 10_000:
        return f"{count:,} bytes"
    for unit in ("KiB", "MiB", "GiB"):
        count_in_unit = count / 1024
        if count_in_unit < 1024 or unit == "GiB":
            return f"{count_in_unit:,.1f} {unit}"
        count //= 1024
    raise AssertionError("unreachable")


def described(spec: AggregateSpec) -> str:
    """An operator in one line."""
    functions = ", ".join(
        f"{type(each).__name__.lower()}({each.column})" for each in spec.aggregates
    )
    if isinstance(spec.window, RunningWindow):
        return f"{functions} by {', '.join(spec.by)}, running"
    if isinstance(spec.window, SessionWindow):
        return f"{functions} by {', '.join(spec.by)} over {spec.window.words(spec.time)}"
    size, advance = spec.window.size, spec.window.advance
    unit = " tuples" if isinstance(spec.window, CountWindow) else ""
    every = "" if size == advance else f" every {advance}"
    return f"{functions} by {', '.join(spec.by)} over windows of {size}{unit}{every}"

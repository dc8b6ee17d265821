"""The page: parts are added from top to bottom, and `write` makes one HTML file of them.

What always holds: what the caller says is escaped, so nothing is loaded or run; nothing in a chart
has an identifier, which that of another chart could be taken for.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from rewake.model.errors import UsageError
from rewake.report.charts import ChartMark, Kind, Limit, Scale, chart_spec, svg_of
from rewake.report.facts import Facts, facts_now
from rewake.report.style import STYLE

Tone = Literal["", "good", "bad", "soft"]

# Letters stay readable on a phone only if the chart is drawn for it, not shrunk to it.
_WIDTHS = {"wide": 860, "narrow": 340}


@dataclass(frozen=True, slots=True)
class Card:
    """One figure of the summary; a number is written with separators."""

    label: str
    value: object
    tone: Tone = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table that is good or bad."""

    value: object
    tone: Tone = ""


class Page:
    """A page in the making.  Every method but `write` adds a part and returns the page."""

    def __init__(
        self, title: str, command: str = "", *, lead: str = "", facts: Facts | None = None
    ) -> None:
        """`command` made the run; `facts`: where and with what (None: here and now)."""
        self.title = title
        self.command = command
        self.facts = facts if facts is not None else facts_now()
        self._parts: list[str] = []
        if lead:
            self.text(lead, tone="soft")

    def heading(self, title: str) -> Page:
        """Begin a section."""
        self._parts.append(f"<h2>{escape(title)}</h2>")
        return self

    def text(self, words: str, *, tone: Tone = "") -> Page:
        """Add a paragraph; an empty line begins another."""
        for paragraph in re.split(r"\n\s*\n", words.strip()):
            self._parts.append(f"<p{_class(tone)}>{escape(paragraph)}</p>")
        return self

    def cards(self, cards: Sequence[Card | tuple[str, object]]) -> Page:
        """Add the figures that matter most."""
        made = [each if isinstance(each, Card) else Card(*each) for each in cards]
        self._parts.append(f"<div class='cards'>{''.join(map(_card, made))}</div>")
        return self

    def table(
        self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], note: str = ""
    ) -> Page:
        """Add a table; columns of numbers are flush right, None is an empty cell."""
        for row in rows:
            if len(row) != len(columns):
                raise UsageError(
                    f"table {title!r} has {len(columns)} columns, but a row has {len(row)} cells"
                )
        right = [
            any(_is_number(row[place]) for row in rows)
            and all(_is_number(row[place]) or _value(row[place]) is None for row in rows)
            for place in range(len(columns))
        ]
        head = "".join(
            f"<th scope='col'{_class('number' if flush else '')}>{escape(name)}</th>"
            for name, flush in zip(columns, right, strict=True)
        )
        body = "".join("<tr>" + "".join(map(_cell, row, right)) + "</tr>" for row in rows)
        caption = f"<h3>{escape(title)}</h3>" if title else ""
        self._parts.append(
            f"<section>{caption}<div class='scroll' tabindex='0'><table><thead><tr>{head}</tr>"
            f"</thead><tbody>{body}</tbody></table></div>{_note(note)}</section>"
        )
        return self

    def settings(self, title: str, settings: Mapping[str, object]) -> Page:
        """Add names with their values, as they were for the run."""
        pairs = "".join(
            f"<dt>{escape(str(name))}</dt><dd>{escape(_written(value)) or '&ndash;'}</dd>"
            for name, value in settings.items()
        )
        self._parts.append(f"<section><h3>{escape(title)}</h3><dl>{pairs}</dl></section>")
        return self

    def chart(
        self,
        title: str,
        data: pa.Table | Mapping[str, Any],
        *,
        x: str,
        y: str | Sequence[str],
        series: str | None = None,
        kind: Kind = "line",
        x_title: str | None = None,
        y_title: str | None = None,
        x_scale: Scale = "linear",
        y_scale: Scale = "linear",
        marks: Sequence[ChartMark] = (),
        limits: Sequence[Limit] = (),
        note: str = "",
    ) -> Page:
        """Add a chart of columns of `data`.

        `y` names one column, with `series` naming the one that tells lines apart, or several
        columns, each a line of that name.  `marks` are moments on x, `limits` levels of y.  Nulls
        and NaN are gaps.  kind: line, point or bar (x is a category then).
        """
        drawn = ""
        for shape, width in _WIDTHS.items():
            spec = chart_spec(
                data, x=x, y=y, series=series, kind=kind, x_title=x_title, y_title=y_title,
                x_scale=x_scale, y_scale=y_scale, marks=marks, limits=limits, width=width,
            )  # fmt: skip
            drawn += f"<div class='{shape}'>{svg_of(spec)}</div>"
        heading = f"<h3>{escape(title)}</h3>" if title else ""
        self._parts.append(
            f"<section>{heading}<figure class='chart scroll' role='img' "
            f"aria-label='{escape(title or 'chart')}'>{drawn}</figure>{_note(note)}</section>"
        )
        return self

    def drawing(self, text: str) -> Page:
        """Add text that is laid out by its letters, e.g. `Query.explain()`."""
        self._parts.append(f"<pre class='scroll drawing' tabindex='0'>{escape(text)}</pre>")
        return self

    def html(self) -> str:
        """The page as text."""
        title = escape(self.title)
        return "\n".join(
            [
                "<!doctype html>",
                "<html lang='en'><head><meta charset='utf-8'>",
                "<meta name='viewport' content='width=device-width, initial-scale=1'>",
                "<meta name='color-scheme' content='light dark'>",
                f"<title>{title}</title><style>{STYLE}</style></head>",
                f"<body><main><h1>{title}</h1>",
                *self._parts,
                "</main>",
                self._footer(),
                "</body></html>",
            ]
        )

    def write(self, path: Path) -> Path:
        """Write the page, whole or not at all; its path."""
        text = self.html()
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
        return path

    def _footer(self) -> str:
        command = (
            f"<h3>Made by</h3><pre><code>{escape(self.command)}</code></pre>"
            if self.command
            else ""
        )
        pairs = "".join(
            f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>"
            for name, value in self.facts.as_rows()
        )
        return f"<footer>{command}<h3>Where and with what</h3><dl>{pairs}</dl></footer>"


# --- parts -----------------------------------------------------------------------------------


def _class(name: str) -> str:
    return f" class='{name}'" if name else ""


def _note(note: str) -> str:
    return f"<p class='note'>{escape(note)}</p>" if note else ""


def _card(card: Card) -> str:
    note = f"<small>{escape(card.note)}</small>" if card.note else ""
    return (
        f"<div class='card'><span>{escape(card.label)}</span>"
        f"<b{_class(card.tone)}>{escape(_written(card.value))}</b>{note}</div>"
    )


def _cell(given: object, right: bool) -> str:
    tone = given.tone if isinstance(given, Cell) else ""
    kinds = " ".join(each for each in ("number" if right else "", tone) if each)
    return f"<td{_class(kinds)}>{escape(_written(_value(given)))}</td>"


def _value(given: object) -> object:
    return given.value if isinstance(given, Cell) else given


def _is_number(given: object) -> bool:
    value = _value(given)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _written(value: object) -> str:
    """A value for people: separators in long numbers, four digits of short ones."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)

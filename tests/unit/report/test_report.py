"""The page of a run: self-contained, escaped, drawn in the page's own colours."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from page_references import external_references

from rewake.model.errors import UsageError
from rewake.report import (
    Card,
    Cell,
    ChartMark,
    Facts,
    Limit,
    Page,
    Raw,
    data_folder,
    facts_now,
    find_data,
)

FACTS = Facts("2026-01-02 03:04 UTC", "1.0", "3.11", "Linux 6", "a processor", 2, 2**32, 0.5)


def page(title: str = "A run") -> Page:
    return Page(title, "rewake demo", facts=FACTS)


def test_a_page_with_everything_needs_nothing_but_itself(tmp_path: Path) -> None:
    """Each kind of part leaves no reference to the outside, and the page is small."""
    made = page()
    made.heading("A section").text("Words.\n\nMore words.", tone="soft")
    made.cards([Card("lost", 0, "good", "a note"), ("tuples", 1_234_567)])
    made.table("Rows", ["node", "ms"], [["a", 1.5], ["b", Cell(None)]], note="In milliseconds.")
    made.settings("Settings", {"rate": 1e6, "approach": None})
    made.chart(
        "Line", {"x": [0, 1], "y": [1.0, 2.0]}, x="x", y="y", marks=[ChartMark(0.5, "kill a")]
    )
    made.drawing("a\n└─ b")
    text = made.write(tmp_path / "new" / "page.html").read_text()
    assert external_references(text) == []
    assert len(text) < 100_000
    for said in ("1,234,567", "kill a", "rewake demo", "a processor", "In milliseconds.", "└─ b"):
        assert said in text
    assert [each.name for each in (tmp_path / "new").iterdir()] == ["page.html"]


def test_what_callers_say_is_text_and_not_markup() -> None:
    """Names of nodes and queries may hold anything."""
    bad = "<b onclick='x'>&\"'"
    made = page(bad).text(bad).heading(bad).cards([(bad, bad)]).table(bad, [bad], [[bad]])
    made.settings(bad, {bad: bad}).drawing(bad)
    made.chart(bad, {"x": [0], "y": [1]}, x="x", y="y", x_title=bad, marks=[ChartMark(0, bad)])
    assert "<b onclick" not in made.html()
    assert external_references(made.html()) == []


@pytest.mark.parametrize(
    "outside",
    [
        "<script>1</script>",
        "<svg><image href='https://example.org/a.png'/></svg>",
        "<svg><use xlink:href='other.svg#a'/></svg>",
        "<svg onload='x()'></svg>",
        "<svg><rect style='fill:url(https://example.org/a)'/></svg>",
        "<svg><style>@import 'a.css';</style></svg>",
        "<svg><foreignObject><iframe></iframe></foreignObject></svg>",
        "<svg><a href='https://example.org'></a></svg>",
    ],
)
def test_what_loads_or_runs_something_would_be_seen(outside: str) -> None:
    """By the look at pages that the tests here take."""
    assert external_references(outside)


def test_nothing_in_a_chart_has_an_identifier() -> None:
    """A clip of one chart could be looked up in another, which may be hidden."""
    line = {"x": [0, 1], "y": [0, 1], "s": ["a", "b"]}
    made = page().chart("A", line, x="x", y="y", marks=[ChartMark(9, "m")], limits=[Limit(3, "Q")])
    for kind in ("line", "point", "bar"):
        made.chart(kind, line, x="x", y="y", series="s", kind=kind)
    assert not re.search(r"""\bid=["']|url\(#""", made.html())


def test_charts_use_the_colours_of_the_page() -> None:
    """No colour of their own: the same drawing is for light, dark and paper."""
    table = pa.table({"x": [0, 1, 0, 1], "y": [1, 2, 3, 4], "who": ["a", "a", "b", "b"]})
    text = page().chart("A", table, x="x", y="y", series="who", limits=[Limit(3, "Q")]).html()
    body = text.split("</style>")[1]
    drawn = set(re.findall(r"""(?:fill|stroke)=["']([^"']+)""", body))
    assert {each for each in drawn if not each.startswith("var(")} <= {"none", "transparent"}
    assert any("--series-2" in each for each in drawn)


def test_a_long_line_is_thinned_but_keeps_its_extremes() -> None:
    """A spike of one point among a million is what a reader looks for."""
    values = np.sin(np.arange(200_000) / 5000)
    values[77_777] = 50.0
    values[123_456] = -50.0
    text = page().chart("A", {"x": np.arange(200_000), "y": values}, x="x", y="y").html()
    assert len(text) < 100_000
    # Both ends of the scale are drawn: a path reaches the top and the bottom of the chart.
    heights = [float(each) for each in re.findall(r"L[\d.]+,([\d.]+)", text)]
    assert max(heights) - min(heights) > 100


def test_gaps_zeroes_and_other_scales_can_be_drawn() -> None:
    """None and NaN are gaps; what a logarithm cannot show is one too."""
    data = {"x": [1, 2, 3, 4], "a": [None, 1.0, 0.0, 1e6], "b": [float("nan")] * 4}
    for kind in ("linear", "log", "symlog"):
        text = page().chart("A", data, x="x", y=["a", "b"], y_scale=kind).html()
        assert "NaN" not in text
    for drawn in ("bar", "point"):
        assert "<svg" in page().chart("A", data, x="x", y=["a", "b"], kind=drawn).html()
    assert "<svg" in page().chart("A", {"x": [], "y": []}, x="x", y="y").html()


def test_mistakes_of_callers_are_named() -> None:
    """A column that is not there, a row that does not fit."""
    with pytest.raises(UsageError, match="no column 'z' to draw; there are x, y"):
        page().chart("A", {"x": [1], "y": [1]}, x="x", y="z")
    with pytest.raises(UsageError, match="2 columns, but a row has 1"):
        page().table("A", ["a", "b"], [["only"]])


def test_what_was_kept_is_read_back(tmp_path: Path) -> None:
    """Tables, words and facts; and the folder is found from the run's own."""
    folder = data_folder(tmp_path / "report.html")
    raw = Raw("bench", "rewake x", facts_now(), {"title": "T"}, {"t": pa.table({"a": [1, 2]})})
    raw.write(folder)
    assert Raw.read(folder) == raw
    assert find_data(tmp_path) == (folder, tmp_path / "report.html")
    assert find_data(folder) == (folder, tmp_path / "report.html")


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (None, "does not hold the data of a run"),
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"format": 99}', "format 99"),
        ('{"format": 2}', "is damaged"),
    ],
)
def test_a_folder_that_cannot_be_read_says_why(
    manifest: str | None, said: str, tmp_path: Path
) -> None:
    """Nothing there, not JSON, of another time."""
    if manifest is not None:
        (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(UsageError, match=said):
        Raw.read(tmp_path)

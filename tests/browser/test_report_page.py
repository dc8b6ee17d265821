"""Reports in a real browser: nothing is loaded, nothing complains, nothing sticks out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Chromium, chromium_path
from sample_drill import sample_drill

from rewake.lab.bench.report import write_bench_report
from rewake.lab.bench.rows import Row
from rewake.lab.drill.report import write_report
from rewake.lab.report import facts_now

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(
        chromium_path() is None, reason="no Chromium: install one or set REWAKE_CHROMIUM"
    ),
]

# What sticks out of the page, though it is not inside something that scrolls.
OVERFLOWING = """
[...document.querySelectorAll('body *')].filter(each =>
  !each.closest('.scroll') && each.getBoundingClientRect().right > innerWidth + 1
).map(each => each.outerHTML.slice(0, 80))
"""
# The contrast of each piece of text with the page behind it, where it is below what reads well.
FAINT = """
(() => {
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = light(getComputedStyle(document.body).backgroundColor);
  const found = [];
  for (const each of document.querySelectorAll('p, h1, h2, h3, td, th, dt, dd, b, .chart text')) {
    const style = getComputedStyle(each);
    const ink = light(each instanceof SVGElement ? style.fill : style.color);
    const contrast = (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
    if (contrast < 4.5) found.push([each.textContent.slice(0, 40), contrast]);
  }
  return found;
})()
"""
SHOWN = "[...document.querySelectorAll('.chart svg')].filter(e => e.getBoundingClientRect().width)"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One page of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    command = "rewake drill items --kill averages@2s " + "--kill averages@recovery.replaying~2 " * 4
    rows = [Row("a rather long name of a figure", 1234.5, "tuples/s", ">= 15", "a note " * 12)] * 5
    return {
        "drill": write_report(
            sample_drill(recover_within="500ms"), folder / "drill.html", command
        ),
        "bench": write_bench_report(
            rows, folder / "bench.html", "rewake bench core", "rewake bench core", facts_now()
        ),
    }  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """One browser for all."""
    path = chromium_path()
    assert path is not None
    with Chromium(path, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where screenshots go: $REWAKE_SCREENSHOTS, to look at them."""
    return Path(os.environ.get("REWAKE_SCREENSHOTS", tmp_path))


@pytest.mark.parametrize("kind", ["drill", "bench"])
@pytest.mark.parametrize(
    ("name", "width", "dark"),
    [("light", 1100, False), ("dark", 1100, True), ("tablet", 768, False), ("phone", 360, True)],
)
def test_a_page_is_readable_on_every_screen(
    kind: str, name: str, width: int, dark: bool, pages: dict[str, Path], browser: Chromium,
    shots: Path,
) -> None:  # fmt: skip
    """No complaint, no request but for the page, nothing wider than the screen, nothing faint."""
    browser.open(pages[kind], width=width, dark=dark)
    assert browser.complaints == []
    assert browser.requests == [pages[kind].as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.evaluate(OVERFLOWING) == []
    assert browser.evaluate(FAINT) == []
    dark_ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark_ground == "rgb(255, 255, 255)") is not dark
    shot = shots / f"{kind}-{name}.png"
    browser.screenshot(shot)
    assert shot.stat().st_size > 10_000


def test_each_chart_is_drawn_once_at_a_size_for_the_screen(
    pages: dict[str, Path], browser: Chromium
) -> None:
    """A phone gets a drawing of its own, with letters that are not shrunk."""
    for width, least in ((1100, 11.0), (360, 11.0)):
        browser.open(pages["drill"], width=width)
        assert browser.evaluate(f"{SHOWN}.length") == 5
        letters = browser.evaluate(
            f"{SHOWN}.map(e => 12 * e.getBoundingClientRect().width / e.viewBox.baseVal.width)"
        )
        assert min(letters) >= least


def test_a_page_can_be_printed(pages: dict[str, Path], browser: Chromium, shots: Path) -> None:
    """On white paper also from a dark screen, and nothing is cut at the edge."""
    browser.open(pages["drill"], width=680, dark=True)
    browser.media(dark=True, kind="print")
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") in (
        "rgb(255, 255, 255)", "rgba(0, 0, 0, 0)",
    )  # fmt: skip
    wide = "[...document.querySelectorAll('table, svg')].map(e => e.getBoundingClientRect().right)"
    assert max(browser.evaluate(wide)) <= 681
    browser.screenshot(shots / "drill-print.png")
    browser.print(shots / "drill.pdf")
    assert (shots / "drill.pdf").read_bytes().startswith(b"%PDF")

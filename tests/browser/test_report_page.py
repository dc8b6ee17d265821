"""Reports in a real browser: nothing is loaded, nothing complains, nothing sticks out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from chromium import Chromium, chromium_path
from sample_drill import sample_drill

from rewake.drill.report import write_report
from rewake.report import facts_now
from rewake_lab.bench import engine
from rewake_lab.bench.peers.job import Workload
from rewake_lab.bench.peers.run import COLUMNS, Figure, Outcome
from rewake_lab.bench.peers.table import about
from rewake_lab.bench.recover_within.measure import Evidence
from rewake_lab.bench.recover_within.report import show
from rewake_lab.bench.recover_within.runs import Case, Drilled, Ran
from rewake_lab.bench.report import write_bench_report
from rewake_lab.bench.rows import Row
from rewake_lab.reproduce import pages as reproduced
from rewake_lab.reproduce.experiment import Setting
from rewake_lab.reproduce.registry import Entry
from rewake_lab.reproduce.run import run_one
from sample_experiment import TOY, toy

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


KINDS = ("drill", "bench", "promises", "peers", "reproduce")


def promises_sample() -> Evidence:
    """Kills of two configurations, with what each took."""
    random = Random(1)
    runs = []
    for case in (Case(0.2, "uniform", 1_000, 9), Case(5.0, "bursty", 1_000_000, 9, on="Spark")):
        drills = [
            Drilled(
                case.target_s, case.keys, case.windows, case.on, possible=True, at_s=2.0 * kill,
                target_ms=case.target_s * 1e3, predicted_ms=90 * random.uniform(1, 1.5),
                at_worst_ms=150.0, achieved_ms=90 * random.uniform(1, 1.7), told=False,
                detect_ms=5.0, restart_ms=80.0, load_ms=20.0, replay_ms=50.0,
                open_windows=case.windows, extent_records=case.windows * random.uniform(1, 3),
                replay_tuples=random.uniform(1e4, 1e6), fixed_ms=40.0, load_us=0.2, replay_us=0.1,
            )
            for kill in range(case.kills)
        ]  # fmt: skip
        runs.append(Ran(case, drills, checks=13_800.0, fewest=10_000, stretch=1e6))
    return Evidence(runs, [(9.7e6, 1e7)], ["throughput"])


def peers_sample() -> Outcome:
    """Two contenders, of whom the other is first in one column."""
    outcome = Outcome({"Rewake nodes": True, "Apache Flink": False})
    outcome.settings = dict.fromkeys(outcome.contenders, "a setting " * 20)
    outcome.figures = [
        Figure(Workload.COUNT, name, column.key, value * (place + 1))
        for place, column in enumerate(COLUMNS)
        for name, value in (("Rewake nodes", 20.0), ("Apache Flink", 3.0))
    ]
    outcome.missing = ["Bytewax: not installed; rewake bench peers --setup adds it"]
    return outcome


def reproduced_sample(folder: Path) -> Path:
    """The page of a paper with one experiment."""
    run_one("toy", toy(), Setting(folder, "small", 7), folder, "rewake reproduce toy")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Entry, "load", lambda _self: toy())
        patched.setattr(reproduced, "ENTRIES", (TOY,))
        (page,) = reproduced.write_pages(folder)
    return page


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
            rows, folder / "bench.html", "rewake bench engine", "rewake bench engine", facts_now(),
            engine.about(),
        ),
        "promises": show(
            promises_sample(), folder / "promises.html", "rewake bench recover-within", facts_now()
        ),
        "peers": write_bench_report(
            peers_sample().rows(), folder / "peers.html", "rewake bench peers",
            "rewake bench peers", facts_now(), about(peers_sample()),
        ),
        "reproduce": reproduced_sample(folder / "reproduced"),
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


@pytest.mark.parametrize("kind", KINDS)
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_can_be_printed(
    kind: str, pages: dict[str, Path], browser: Chromium, shots: Path
) -> None:
    """On white paper also from a dark screen, and nothing is cut at the edge."""
    browser.open(pages[kind], width=680, dark=True)
    browser.media(dark=True, kind="print")
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") in (
        "rgb(255, 255, 255)", "rgba(0, 0, 0, 0)",
    )  # fmt: skip
    wide = "[...document.querySelectorAll('table, svg')].map(e => e.getBoundingClientRect().right)"
    assert max(browser.evaluate(wide)) <= 681
    browser.screenshot(shots / f"{kind}-print.png")
    browser.print(shots / f"{kind}.pdf")
    assert (shots / f"{kind}.pdf").read_bytes().startswith(b"%PDF")

"""One self-contained HTML page for any run: a demo, a drill, a benchmark, a reproduced experiment.

    page = Page("Drill: items", command="rewake drill items", lead="5,000,000 tuples; one kill.")
    page.cards([Card("tuples per second", 1_234_567), Card("lost", 0, tone="good")])
    page.chart("Throughput", table, x="seconds", y=["input", "results"], y_scale="symlog",
               marks=[ChartMark(4.0, "kill averages")])
    page.table("Recoveries (ms)", ["node", "load", "replay"], [["averages", 12.5, 80.1]])
    page.write(Path("report.html"))

What always holds: a page needs nothing but its own file (no script; no font, image or style from
elsewhere), and it reads on light and dark screens, on narrow ones and on paper.  Charts are SVG
whose colours are variables of the page's style.

`Raw` keeps what a run measured (Parquet and manifest.json) in `data_folder(page)`, beside the page,
so that the page can be made again without running.
"""

from rewake.report.charts import ChartMark, Limit, require_charts
from rewake.report.facts import Facts, facts_now
from rewake.report.page import Card, Cell, Page
from rewake.report.raw import Raw, data_folder, find_data

__all__ = [
    "Card",
    "Cell",
    "ChartMark",
    "Facts",
    "Limit",
    "Page",
    "Raw",
    "data_folder",
    "facts_now",
    "find_data",
    "require_charts",
]

"""An experiment of no paper, with everything in it that a page shows."""

from __future__ import annotations

from collections.abc import Iterator

from rewake_lab.reproduce.experiment import Experiment, Finding, Plot, Row, Setting, middle, where
from rewake_lab.reproduce.registry import Entry

TOY = Entry("toy", "cec", "Fig. 0", "A toy")


def toy(error: BaseException | None = None) -> Experiment:
    """Yields two rows, then perhaps raises."""

    def rows(setting: Setting) -> Iterator[Row]:
        yield {"x": 1, "y": 2.0}
        yield {"x": 2, "y": float(setting.seed)}
        if error is not None:
            raise error

    return Experiment(
        rows,
        lambda setting: f"scaled {setting.scale}",
        lambda table: [Finding("y at 1", middle(table, "y", x=1), "units", "3")],
        lambda table: [Plot("A plot", table, "x", "y", "x", "y", marks=((1.5, "a mark"),))],
        lambda table: f"The verdict on {where(table, x=1).num_rows} row.",
    )

"""The table of all experiments.  Adding one adds a module with an `EXPERIMENT` and a line here.

Modules are imported when their experiment is asked for, so that listing them stays fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from rewake.model.errors import UsageError

if TYPE_CHECKING:
    from rewake_lab.reproduce.experiment import Experiment, Paper


@dataclass(frozen=True, slots=True)
class Entry:
    """An experiment by name; its module is `<paper>.<the rest of the name>`."""

    name: str
    paper: Paper
    figure: str
    title: str

    def load(self) -> Experiment:
        """The experiment itself."""
        paper, _, figure = self.name.partition("-")
        module = import_module(f"rewake_lab.reproduce.{paper}.{figure.replace('-', '_')}")
        experiment: Experiment = module.EXPERIMENT
        return experiment


ENTRIES: tuple[Entry, ...] = (
    Entry("cec-fig5", "cec", "Fig. 5", "What OPEN tuples cost, in fast and slow windows"),
    Entry("cec-fig6", "cec", "Fig. 6", "The effect of Q on CHECKs, extent, load and replay"),
    Entry("cec-fig7", "cec", "Fig. 7", "The effect of U on CHECKs, extent, load and replay"),
    Entry("cec-fig8", "cec", "Fig. 8 and 9", "Response time and extent against the period CP"),
    Entry("cec-policies", "cec", "III.A, discussed", "Cost-benefit against targets"),
    Entry("cec-time-windows", "cec", "IV, discussed", "Time windows beside count windows"),
    Entry("cec-sliding-windows", "cec", "II, discussed", "Windows that overlap"),
    Entry("thesis-model", "thesis", "3.2", "The analytical model, fitted and held to account"),
    Entry("thesis-fig36", "thesis", "Fig. 3.5 and 3.6", "Tuple size, batching, stable writes"),
    Entry("thesis-table31", "thesis", "Table 3.1", "What a node gains from more cores"),
    Entry("thesis-fig37", "thesis", "Fig. 3.7", "Synchronous metadata, 1 to 8 writers"),
    Entry("thesis-fig38", "thesis", "Fig. 3.8 and 3.9", "1 to 8 nodes on 1 to 8 stripes"),
    Entry("thesis-fig310", "thesis", "Fig. 3.10", "A stateless node dies and catches up"),
    Entry("thesis-fig43", "thesis", "Fig. 4.3", "What OPEN tuples cost: fast, slow and mixed"),
    Entry("thesis-fig44", "thesis", "Fig. 4.4", "The intensity of CHECKs, T and H of 2 to 100 ms"),
)


def chosen(names: Sequence[str]) -> list[Entry]:
    """The experiments of these names, in the order of the table; `all` means all."""
    known = {entry.name: entry for entry in ENTRIES}
    unknown = [name for name in names if name not in known and name != "all"]
    if unknown:
        raise UsageError(
            f"there is no experiment {', '.join(map(repr, unknown))}; there are all, "
            f"{', '.join(known)}"
        )
    return [entry for entry in ENTRIES if entry.name in names or "all" in names]

"""`rewake simulate`: nodes and coordinator in virtual time, with faults grown from a seed."""

from typing import TYPE_CHECKING, Annotated

import typer

from rewake.cli.exit_codes import ExitCode
from rewake.cli.options import AsJson, print_json

if TYPE_CHECKING:
    from rewake.sim.run import Outcome

SIMULATE_HELP = """\
Run random queries with random faults in virtual time, and compare with an oracle.

The same seed always gives the same run.

\b
Examples:
  rewake simulate                      100 seeds
  rewake simulate --seeds 5000 --json
  rewake simulate --seed 42 --story    one seed, everything that happens in it

Exits with 0 when every seed holds, with 4 when one does not.
"""


def simulate(
    seed: Annotated[
        int | None, typer.Option(help="Run this seed alone.", show_default=False)
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run.")] = 100,
    first: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    story: Annotated[
        bool, typer.Option("--story", help="Print everything that happens, with --seed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run random queries with random faults in virtual time, and compare with an oracle."""
    if story and seed is None:
        raise typer.BadParameter("a story is of one seed: give --seed too", param_hint="--story")
    outcomes = _run([seed] if seed is not None else list(range(first, first + seeds)), story)
    failed = [each for each in outcomes if each.failure]
    if as_json:
        print_json(_as_json(outcomes))
    else:
        _print(outcomes, failed)
    raise typer.Exit(ExitCode.INVARIANT_VIOLATED if failed else ExitCode.OK)


def _run(seeds: list[int], story: bool) -> list["Outcome"]:
    from rich.console import Console  # noqa: PLC0415 (keeps --help fast)
    from rich.progress import track  # noqa: PLC0415 (keeps --help fast)

    from rewake.drill.simulation import simulate as run  # noqa: PLC0415 (keeps --help fast)

    if story:
        return [run(seed, listener=typer.echo) for seed in seeds]
    console = Console(stderr=True)
    return [run(each) for each in track(seeds, "simulating", console=console, transient=True)]


def _totals(outcomes: list["Outcome"]) -> dict[str, dict[str, int]]:
    totals: dict[str, dict[str, int]] = {"checked": {}, "faults": {}}
    for outcome in outcomes:
        for kind, counts in (("checked", outcome.checked), ("faults", outcome.faults)):
            for name, count in counts.items():
                totals[kind][name] = totals[kind].get(name, 0) + count
    return totals


def _as_json(outcomes: list["Outcome"]) -> dict[str, object]:
    return {
        "seeds": len(outcomes),
        "virtual_ms": round(sum(each.virtual_ms for each in outcomes), 3),
        "actions": sum(each.actions for each in outcomes),
        **_totals(outcomes),
        "trace_hashes": {each.seed: each.trace_hash for each in outcomes},
        "failed": [
            {"seed": each.seed, "failure": each.failure} for each in outcomes if each.failure
        ],
    }


def _print(outcomes: list["Outcome"], failed: list["Outcome"]) -> None:
    from rich.console import Console  # noqa: PLC0415 (keeps --help fast)
    from rich.table import Table  # noqa: PLC0415 (keeps --help fast)

    for outcome in failed[:1]:
        typer.echo(outcome.report(), err=True)
    totals = _totals(outcomes)
    table = Table("what", "count", title="rewake simulate")
    table.add_row("seeds", f"{len(outcomes):,}")
    table.add_row("seeds that failed", f"{len(failed):,}")
    table.add_row("virtual seconds", f"{sum(each.virtual_ms for each in outcomes) / 1000:,.1f}")
    for name, count in totals["checked"].items():
        table.add_row(name, f"{count:,}")
    for name, count in sorted(totals["faults"].items(), key=lambda each: -each[1]):
        table.add_row(f"fault: {name}", f"{count:,}")
    Console().print(table)
    if failed:
        typer.echo("failed seeds: " + ", ".join(str(each.seed) for each in failed), err=True)

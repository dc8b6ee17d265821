"""`rewake demo`: what Rewake is, in one minute."""

from pathlib import Path
from typing import Annotated

import typer

from rewake.cli.drill_run import check_place, place_for, run_once
from rewake.cli.drill_view import show_and_exit
from rewake.cli.options import AsJson, On, path_of


def demo(
    seconds: Annotated[float, typer.Option(help="How long data flows.", min=0.1)] = 10.0,
    rate: Annotated[float, typer.Option(help="Input tuples per second.", min=100)] = 1_000_000.0,
    keys: Annotated[int, typer.Option(help="Different items: open windows.", min=1)] = 100_000,
    window: Annotated[int, typer.Option(help="Tuples of an item that are averaged.", min=1)] = 10,
    seed: Annotated[int, typer.Option(help="The input.")] = 1,
    kill: Annotated[
        str, typer.Option(help="Which node to kill and when; empty: none.")
    ] = "averages@4s",
    on: On = "spark",
    folder: Annotated[
        Path | None,
        typer.Option(parser=path_of, help="Where logs and report go.", show_default="a new one"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    r"""Run a query on Spark, kill a node while data flows, check every result.

    Purchases of items flow through a filter into an operator that averages prices per item over
    count windows; each step is a node of its own, a long-lived Spark task.  The node with the
    windows is killed with SIGKILL.  Spark starts it again, it rebuilds its windows from its own
    output log and goes on.  At the end every result is compared with an oracle.

    \b
    Examples:
      rewake demo                         on a local Spark, about a minute in all
      rewake demo --on processes          the same without Spark
      rewake demo --kill cheap@50% --json another node, figures for a program

    Exits with 4 when a result is lost, duplicated, reordered or wrong.
    """
    from random import Random  # noqa: PLC0415 (keeps --help fast)

    from rewake.drill.queries import ItemDrill  # noqa: PLC0415
    from rewake.drill.when import parse  # noqa: PLC0415

    check_place(on)
    drill = ItemDrill(
        tuples=int(seconds * rate), items=keys, window=window, seed=seed, rate=rate,
        event_tuples=max(1, min(16_384, int(rate / 50))),
    )  # fmt: skip
    wanted = [parse(kill, "kill", Random(seed))] if kill else []
    with place_for(folder, "rewake-demo-") as place:
        figures = run_once(drill, place, on, wanted=wanted, quiet=as_json, title="Demo")
    show_and_exit([figures], as_json)

"""`rewake drill`: break a query on purpose and compare what comes out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rewake.cli.drill_run import check_place, place_for, run_once
from rewake.cli.drill_view import show_and_exit
from rewake.cli.options import AsJson, On, QueryName, path_of, print_json
from rewake.model.errors import UsageError

if TYPE_CHECKING:
    from rewake.drill.drill import Drill

_OPTIONS = {
    "tuples": "--tuples",
    "items": "--keys",
    "rate": "--rate",
    "approach": "--approach",
    "recover_within": "--recover-within",
}


# --- what can be said on the command line --------------------------------------------------------

_Kill = Annotated[list[str] | None, typer.Option(help="NODE@WHEN; may be repeated.")]
_Pause = Annotated[
    list[str] | None, typer.Option(help="NODE@WHEN: SIGSTOP instead; may be repeated.")
]
_Tuples = Annotated[
    int | None,
    typer.Option(
        help="Input tuples; of NEXMark, events.", min=1, show_default="5000000; NEXMark 500000"
    ),
]
_Keys = Annotated[
    int | None, typer.Option(help="Different items: open windows.", min=1, show_default="100000")
]
_Rate = Annotated[
    float | None,
    typer.Option(help="Tuples per second.", min=100, show_default="as fast as it goes"),
]
_Approach = Annotated[
    str | None,
    typer.Option(
        help="How nodes recover: cec, instant, active-standby, passive-standby.",
        show_default="cec",
    ),
]
_RecoverWithin = Annotated[
    str | None, typer.Option(help="How long a crash may cost beyond a restart: 500ms, 1s.")
]
_Servers = Annotated[
    int | None,
    typer.Option(help="Processes or tasks that share the nodes.", min=1, show_default="one each"),
]
_Seed = Annotated[int, typer.Option(help="The input, and moments called random.")]
_Repeat = Annotated[int, typer.Option(help="How often to run it, with seeds from SEED on.", min=1)]
_Folder = Annotated[
    Path | None,
    typer.Option(parser=path_of, help="Where logs and reports go.", show_default="a new one"),
]


def drill(
    query: QueryName = "items",
    kill: _Kill = None,
    pause: _Pause = None,
    tuples: _Tuples = None,
    keys: _Keys = None,
    rate: _Rate = None,
    approach: _Approach = None,
    recover_within: _RecoverWithin = None,
    servers: _Servers = None,
    seed: _Seed = 1,
    repeat: _Repeat = 1,
    on: On = "spark",
    folder: _Folder = None,
    points: Annotated[bool, typer.Option("--points", help="List the kill points.")] = False,
    as_json: AsJson = False,
) -> None:
    r"""Break a query on purpose and compare what comes out with an oracle.

    \b
    WHEN is a time after the first result (3s, 500ms), a share of the input (40%), `random`, or a
    kill point: a named place in the code, with #N for its N-th passing and ~L for the node's L-th
    life (averages@recovery.replaying~2 kills it while it recovers).

    \b
    Examples:
      rewake drill items --kill averages@40%
      rewake drill items --kill averages@2s --kill averages@recovery.replaying~2 --on processes
      rewake drill items-sharded --kill averages-0@random --repeat 10 --seed 7 --json
      rewake drill items-sharded --kill averages-0@40% --servers 2 --on processes
      rewake drill nexmark:q5 --kill counts-0@40%
      rewake drill my_query.py --kill averages@40%
      rewake drill --points

    \b
    A file is run twice, once left alone and once with the faults, and the two are compared.  Its
    query needs a finite source and streams (.to_stream), and no sinks.

    Exits with 4 when a result is lost, duplicated, reordered or wrong.
    """
    if points:
        _print_points(as_json)
        return
    check_place(on)
    given = {"tuples": tuples, "items": keys, "rate": rate, "approach": approach}
    given["recover_within"] = recover_within
    settings = {name: value for name, value in given.items() if value is not None}
    summaries = []
    with place_for(folder, "rewake-drill-") as place:
        for number in range(repeat):
            where = place if repeat == 1 else place / f"run-{number}"
            where.mkdir(parents=True, exist_ok=True)
            summaries.append(
                _one(query, where, settings, seed + number, kill or [], pause or [], on,
                     servers=servers, quiet=as_json)
            )  # fmt: skip
    show_and_exit(summaries, as_json)


def _one(
    query: str,
    place: Path,
    settings: dict[str, Any],
    seed: int,
    kills: list[str],
    pauses: list[str],
    on: str,
    *,
    servers: int | None,
    quiet: bool,
) -> dict[str, Any]:
    from random import Random  # noqa: PLC0415 (keeps --help fast)

    from rewake.drill.when import parse  # noqa: PLC0415

    random = Random(seed)
    wanted = [parse(text, "kill", random) for text in kills]
    wanted += [parse(text, "pause", random) for text in pauses]
    one = _drill(query, settings, seed)
    return run_once(one, place, on, wanted=wanted, quiet=quiet, servers=servers)


def _drill(query: str, settings: dict[str, Any], seed: int) -> "Drill":
    from rewake.drill.files import FileDrill  # noqa: PLC0415 (keeps --help fast)
    from rewake.drill.queries import built_in  # noqa: PLC0415

    if not query.endswith(".py"):
        return built_in(query, seed=seed, **settings)
    if settings:
        raise UsageError(
            f"{query} says itself what its input and approach are; leave out "
            f"{', '.join(_OPTIONS[name] for name in settings)}"
        )
    return FileDrill.of(path_of(query))


def _print_points(as_json: bool) -> None:
    from rewake.drill.when import NODE_POINTS  # noqa: PLC0415

    if as_json:
        print_json(NODE_POINTS)
    else:
        typer.echo("\n".join(NODE_POINTS))

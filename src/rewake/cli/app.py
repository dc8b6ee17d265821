"""The command line's table of commands, and how a run of it ends.

Adding a command adds a module with one function and one line under "the commands".  A command's
module imports what is heavy (numba, pyarrow, pyspark) inside its function, so that
`rewake --help` stays fast.
"""

import logging
import sys
import traceback
from collections.abc import Callable
from inspect import cleandoc
from typing import Annotated

import typer

from rewake import __version__
from rewake.cli.backup import backup, restore
from rewake.cli.demo import demo
from rewake.cli.doctor import doctor
from rewake.cli.drill import drill
from rewake.cli.exit_codes import ExitCode, exit_code_of
from rewake.cli.explain import explain
from rewake.cli.inspect import inspect
from rewake.cli.migrate import migrate
from rewake.cli.others import add_commands_of_others
from rewake.cli.report import REPORT_HELP, report
from rewake.cli.simulate import SIMULATE_HELP, simulate
from rewake.model.errors import RewakeError

_HELP = """\
Stateful stream processing on PySpark that survives failures at a price you choose.

\b
Examples:
  rewake doctor             what this machine has, what it lacks and what to do
  rewake doctor --json      the same for a program
  rewake demo               run a query on Spark, kill a node, check every result
  rewake drill items --kill averages@40%    the same for any query and any moment
  rewake report FOLDER      the page of a demo, drill or benchmark again
  rewake explain FILE.py    what a query would run, and what it guarantees
  rewake backup FOLDER TO   a copy of a query that runs; rewake restore brings it back
  rewake migrate state/averages state/averages-8 --shards 8
  rewake simulate           random queries and faults in virtual time, from a seed
  rewake inspect log PATH   what a log holds, every checksum verified

Exit codes: 0 ok, 1 failure, 2 usage, 3 environment, 4 invariant violated, 130 interrupted.
"""

app = typer.Typer(
    name="rewake",
    help=_HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rewake {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Take the options that go before a command."""


def _help_of(command: Callable[..., None]) -> str:
    """Its docstring, in which raw text can only spell the mark that keeps lines as they are."""
    return cleandoc(command.__doc__ or "").replace("\\b\n", "\b\n")


# --- the commands ----------------------------------------------------------------------------

app.command("doctor", help=_help_of(doctor))(doctor)
app.command("demo", help=_help_of(demo))(demo)
app.command("drill", help=_help_of(drill))(drill)
app.command("report", help=REPORT_HELP)(report)
app.command("backup", help=_help_of(backup))(backup)
app.command("restore", help=_help_of(restore))(restore)
app.command("migrate", help=_help_of(migrate))(migrate)
app.command("explain", help=_help_of(explain))(explain)
app.add_typer(inspect, name="inspect")
app.command("simulate", help=SIMULATE_HELP)(simulate)
add_commands_of_others(app)


def main() -> None:
    """Run the command line; errors raised on purpose are one message, without a traceback."""
    # Commands tell what happens in their own way; programs that use the library hear warnings.
    logging.getLogger("rewake").addHandler(logging.NullHandler())
    try:
        app(prog_name="rewake")
    except RewakeError as error:
        _fail(f"error: {error}", exit_code_of(error))
    except AssertionError:
        # A bug in Rewake: the traceback is what a report of it needs.
        traceback.print_exc()
        _fail("error: an invariant was violated; this is a bug", ExitCode.INVARIANT_VIOLATED)
    except KeyboardInterrupt:
        _fail("interrupted", ExitCode.INTERRUPTED)
    except SystemExit as ended:
        # typer turns an interrupt within a command into this exit, without a word.
        if ended.code == ExitCode.INTERRUPTED:
            _fail("interrupted", ExitCode.INTERRUPTED)
        raise


def _fail(message: str, code: ExitCode) -> None:
    sys.stderr.write(f"{message}\n")
    sys.exit(code)

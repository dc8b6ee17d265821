"""Commands that other packages bring, and the laboratory's where it is not installed."""

import pytest
import typer
from typer.testing import CliRunner

from rewake.cli import others
from rewake.cli.others import add_commands_of_others
from rewake.drill.queries import built_in
from rewake.model.errors import UsageError


class Brought:
    """An entry point of a package that adds one command."""

    def load(self):
        def add_to(app: typer.Typer) -> None:
            @app.command("hello")
            def hello() -> None:
                typer.echo("hello")

        return add_to


def app_with(entry_points, monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """A command line in a world where only these are installed."""
    monkeypatch.setattr(others, "entry_points", lambda **_: entry_points)
    app = typer.Typer()
    app.callback()(lambda: None)
    add_commands_of_others(app)
    return app


def test_a_package_adds_its_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an entry point alone."""
    app = app_with([Brought()], monkeypatch)
    assert CliRunner().invoke(app, ["hello"]).output == "hello\n"


@pytest.mark.parametrize("line", [["bench", "core", "--json"], ["reproduce", "all"], ["bench"]])
def test_without_the_laboratory_its_commands_say_how_to_get_it(
    line: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was asked of them."""
    result = CliRunner().invoke(app_with([], monkeypatch), line)
    assert isinstance(result.exception, UsageError)
    assert f"`rewake {line[0]}` belongs to the laboratory" in str(result.exception)
    assert "pip install rewake-lab" in str(result.exception)


def test_an_unknown_query_is_refused_with_those_that_are_there() -> None:
    """Those of the laboratory among them."""
    with pytest.raises(UsageError, match="there are items, items-sharded, nexmark:q1, "):
        built_in("nexmark:q99")

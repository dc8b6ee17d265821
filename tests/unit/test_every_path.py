"""Everything that takes a path refuses what is not of this machine: found by looking, not listed.

A function or a parameter of a command that is new, and takes a path, is found here by its
annotation; it fails until it is given its way to be called, and refuses.
"""

import dataclasses
import inspect
import typing
from pathlib import Path

import pyarrow as pa
import pytest
import typer.main
from typer.testing import CliRunner

import rewake
from rewake.cli.app import app
from rewake.connectors.streams.folder import create_stream, open_stream
from rewake.model.errors import UsageError
from rewake.net.shards.folder import ShardFolder
from rewake.spark.datasource.options import read_options, write_options
from rewake.spark.datasource.streams import find_shards
from rewake.spark.structured.migrate import migrate
from rewake.stores import LocalStore, create_log, open_log_reader, open_log_writer

ELSEWHERE = "s3a://bucket/state"
SCHEMA = pa.schema([("value", pa.int64())])


def query() -> rewake.Query:
    found = rewake.Query("paths")
    table = pa.table({"value": [1]})
    found.source("values", rewake.Batches(table.to_batches())).to_stream("out")
    return found


def nothing(*_arguments: object) -> None:
    """A user's function."""


PUBLIC = {
    "aggregate": lambda at: rewake.aggregate(by="k", window=rewake.count_window(2), avg="v", at=at),
    "process": lambda at: rewake.process(nothing, by="k", state={}, output=SCHEMA, at=at),
    "Files": rewake.Files,
    "FileSink": rewake.FileSink,
    "Sqlite": rewake.Sqlite,
    "StreamSource": rewake.StreamSource,
    "read_parts": rewake.read_parts,
    "start": lambda path: rewake.start(query(), path),
    "start_processes": lambda path: rewake.start_processes(query(), path),
    "subscribe": lambda path: rewake.subscribe(path, "out", SCHEMA),
    "produce": lambda path: rewake.produce(path, "in"),
}
WITHIN = {
    "a log is created": lambda path: create_log(path, "log"),
    "a log is written": open_log_writer,
    "a log is read": open_log_reader,
    "a store": lambda path: LocalStore(path, create=True),
    "a stream is created": lambda path: create_stream(path, SCHEMA),
    "a stream is opened": open_stream,
    "an operator's folder": ShardFolder,
    "migrate from": lambda path: migrate(None, path, "to", 2),
    "migrate to": lambda path: migrate(None, "from", path, 2),
    "format rewake, read": lambda path: read_options({"path": path}),
    "format rewake, shards": find_shards,
    "format rewake, write": lambda path: write_options({"path": path}),
}


def takes_a_path(thing: object) -> bool:
    """Whether one of its parameters is annotated as a path, or called as folders are."""
    if not callable(thing) or not (inspect.isfunction(thing) or dataclasses.is_dataclass(thing)):
        return False
    for name, parameter in inspect.signature(thing).parameters.items():
        written = str(parameter.annotation)
        if "Path" in written or name in {"at", "folder", "path", "root"}:
            return True
    return False


def test_every_public_function_that_takes_a_path_is_known_here():
    """Whoever adds one adds how it is called, and so has it checked."""
    found = {name for name in rewake.__all__ if takes_a_path(getattr(rewake, name))}
    assert found == set(PUBLIC)


@pytest.mark.parametrize(("call"), [*PUBLIC.values(), *WITHIN.values()], ids=[*PUBLIC, *WITHIN])
def test_a_scheme_is_refused_wherever_a_path_is_taken(call, tmp_path, monkeypatch):
    """With a typed error that says what is supported, before anything is made anywhere."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="s3a:, and only local or mounted"):
        call(ELSEWHERE)
    assert list(tmp_path.iterdir()) == []


Commands = dict[tuple[str, ...], typing.Any]


def commands(command: typing.Any, name: tuple[str, ...] = ()) -> Commands:
    """Every command by its words."""
    if not hasattr(command, "commands"):
        return {name: command}
    found: Commands = {}
    for each, below in command.commands.items():
        found |= commands(below, (*name, each))
    return found


ALL = commands(typer.main.get_command(app))


def path_parameters() -> list[tuple[tuple[str, ...], str]]:
    """The parameters of commands whose annotation has a path in it."""
    return [
        (name, parameter)
        for name, command in ALL.items()
        for parameter, written in typing.get_type_hints(command.callback).items()
        if Path in {written, *typing.get_args(written)}
    ]


@pytest.mark.parametrize(
    ("name", "parameter"),
    path_parameters(),
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_scheme_is_refused_by_every_command(name, parameter, tmp_path, monkeypatch):
    """Each parameter that is a path says so itself, whatever else is given."""
    monkeypatch.chdir(tmp_path)
    words = list(name)
    for each in ALL[name].params:
        if not each.opts[0].startswith("-"):
            words.append(ELSEWHERE if each.name == parameter else "x")
        elif each.name == parameter:
            words += [each.opts[0], ELSEWHERE]
        elif each.required:
            words += [each.opts[0], "1"]
    run = CliRunner().invoke(app, words)
    assert isinstance(run.exception, UsageError), run.output
    assert "s3a:, and only local or mounted" in str(run.exception)
    assert list(tmp_path.iterdir()) == []


def test_commands_have_paths_to_look_at():
    """The enumeration above finds the commands' parameters."""
    names = {name[0] for name, _ in path_parameters()}
    assert {"bench", "demo", "doctor", "drill", "explain", "inspect", "migrate", "report"} <= names

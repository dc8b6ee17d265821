"""The order of the layers, and what the pure core must never touch."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "rewake"
FILES = sorted(SOURCE.rglob("*.py"))
LABORATORY = sorted((ROOT / "lab" / "rewake_lab").rglob("*.py"))

PURE = ("model", "operators", "log", "recovery", "graph", "node")
EFFECTS = frozenset(
    {
        "asyncio",
        "concurrent",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "secrets",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "uuid",
    }
)
# They run code that they read.
LOADERS = frozenset({"cloudpickle", "dill", "marshal", "pickle", "shelve"})
RUNNERS = frozenset({"eval", "exec", "compile", "__import__"})


def name_of(path: Path) -> str:
    """Return a file's path within the package, or the repository, to name a test case."""
    return str(path.relative_to(SOURCE if path.is_relative_to(SOURCE) else ROOT))


def imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield (dotted name, line) of everything a module imports, wherever it does so."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def called(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield (name, line) of every call of a plain name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, node.lineno


def attributes(code: str) -> set[str]:
    """Return all names that stand behind a dot."""
    return {node.attr for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Attribute)}


def test_the_layers_are_in_order() -> None:
    """Every contract of pyproject.toml is kept; `lint-imports` says which one is not.

    In a process of its own: it disables all loggers that there are.
    """
    run = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", run, "--no-cache"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


def test_the_three_walks_go_along_files_that_are_there() -> None:
    """A name without a folder is that of a file beside the one that was named before it."""
    document = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    walks = document.split("## Three walks")[1].split("\n## ")[0]
    named = re.findall(r"`((?!src/)[\w/]+(?:\.py|/))`", walks)
    assert len(named) > 20
    folder = SOURCE
    for name in named:
        path = SOURCE / name if "/" in name else folder / name
        assert path.exists(), f"{name} is not there"
        folder = path.parent


@pytest.mark.parametrize("path", [*FILES, *LABORATORY], ids=name_of)
def test_nothing_loads_or_runs_code_from_data(path: Path) -> None:
    """No pickle in files or on the wire, no eval: stored bytes are data."""
    tree = ast.parse(path.read_text())
    loads = [(name, line) for name, line in imported(tree) if name.split(".")[0] in LOADERS]
    runs = [(name, line) for name, line in called(tree) if name in RUNNERS]
    assert loads + runs == []


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.relative_to(SOURCE).parts[0] in PURE], ids=name_of
)
def test_the_pure_core_has_no_effects(path: Path) -> None:
    """Files, sockets, threads, clocks and randomness are arguments or commands there."""
    tree = ast.parse(path.read_text())
    effects = [
        (name, line)
        for name, line in imported(tree)
        if name.split(".")[0] in EFFECTS or name in {"io.open", "numpy.random"}
    ]
    opens = [(name, line) for name, line in called(tree) if name in {"open", "print", "input"}]
    assert effects + opens == []


def test_the_stores_alone_make_bytes_durable() -> None:
    """Everybody else goes through them; the doctor measures what it costs."""
    syncing = {path for path in FILES if {"fsync", "fdatasync"} & attributes(path.read_text())}
    assert {name_of(path) for path in syncing} == {
        "cli/findings.py",
        "stores/local.py",
        "stores/small_files.py",
    }


@pytest.mark.parametrize(
    "code",
    ["import os", "import os.path as p", "from time import sleep", "def f():\n import random"],
)
def test_the_gate_sees_every_way_to_import(code: str) -> None:
    """Aliases, members and imports inside functions are no way around it."""
    assert any(name.split(".")[0] in EFFECTS for name, _ in imported(ast.parse(code)))

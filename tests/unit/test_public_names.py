"""`import rewake`: what users and their tools see of it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rewake

ROOT = Path(__file__).parents[2]

# What takes long to load, or need not be installed.
_HEAVY = ("pyarrow", "numpy", "numba", "pandas", "pyspark", "asyncio", "sqlite3", "multiprocessing")

_RIGHT = """
import rewake

query = rewake.Query("average-price")
items = query.source("items", rewake.Files("purchases/*.parquet"))
averages = items.aggregate(by="item_id", window=rewake.count_window(10), avg="item_price")
averages.to_stream("averages", keep_for="1h")
"""


def _checked(folder: Path, program: str) -> str:
    """What mypy says of a program, with what it has learned of Rewake before."""
    file = folder / "program.py"
    file.write_text(program)
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(file)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def test_a_type_checker_sees_through_the_package(tmp_path: Path) -> None:
    """Names are found when they are first used, but types are known before."""
    assert _checked(tmp_path, _RIGHT) == ""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ('rewake.count_window("10s")', 'Argument 1 to "count_window" has incompatible type "str"'),
        ('rewake.Query("q", recover="1s")', 'Unexpected keyword argument "recover" for "Query"'),
        ('rewake.Querry("q")', 'Module has no attribute "Querry"'),
    ],
)
def test_a_type_checker_catches_what_is_wrong(tmp_path: Path, wrong: str, said: str) -> None:
    """An argument of the wrong type, one that is not there, a name that is not there."""
    found = _checked(tmp_path, _RIGHT + wrong)
    assert said in found
    assert found.count("error:") == 1


def test_importing_rewake_loads_nothing_else() -> None:
    """A program pays for what it uses."""
    program = "import sys, rewake; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert [each for each in loaded if each.startswith("rewake.")] == []
    assert [each for each in loaded if each.split(".")[0] in _HEAVY] == []


@pytest.mark.parametrize("name", rewake.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """What is listed can be had, and `dir` lists it."""
    assert getattr(rewake, name) is not None
    assert name in dir(rewake)


def test_type_checkers_are_told_of_every_public_name() -> None:
    """What is imported for them is what is listed, from where it is at run time."""
    tree = ast.parse(Path(rewake.__file__).read_text())
    told = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("rewake.")
        for alias in node.names
    }
    assert sorted([*told, "__version__"]) == sorted(rewake.__all__)
    for name, module in told.items():
        __import__(str(module))
        assert getattr(sys.modules[str(module)], name) is getattr(rewake, name)


def test_a_name_that_is_not_there_is_said_to_be_missing() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="module 'rewake' has no attribute 'Querry'"):
        getattr(rewake, "Querry")  # noqa: B009 (a type checker would refuse it)

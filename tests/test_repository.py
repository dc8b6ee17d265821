"""What must hold of the repository itself: no addresses, honest docs, a set-up that fails well."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import rewake

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

# Split, so that this file does not find itself.
_REGISTRIES = re.compile(
    "|".join(
        [
            "python" + r"hosted\.org",
            r"pypi\.org" + "/simple",
            "--(?:extra-)?index" + "-url",
            r"registry\.npm" + r"js\.org",
            "file:/" + "//?opt",
            r"https?://[^\s\"')]*/simple" + r"\b",
        ]
    )
)
_MACHINE_PATHS = re.compile(r"(?<![\w.}])/(?:root|work|home/[a-z]\w*)" + r"/")
_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<code>.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)|(?:src|srcset|href)=\"([^\"]+)\"")


def tracked() -> list[Path]:
    """Return the files that are, or would be, committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in result.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def texts() -> Iterator[tuple[str, str]]:
    """Yield (name, content) of every tracked text file."""
    for path in tracked():
        data = path.read_bytes()
        if b"\0" not in data[:8192]:
            yield str(path.relative_to(ROOT)), data.decode(errors="replace")


def projects() -> list[dict[str, Any]]:
    """Return what Rewake and its laboratory say of themselves."""
    files = [ROOT / "pyproject.toml", ROOT / "lab" / "pyproject.toml"]
    return [tomllib.loads(file.read_text())["project"] for file in files]


def test_no_file_holds_the_address_of_a_package_registry() -> None:
    """Where packages come from is the business of each machine."""
    assert [name for name, text in texts() if _REGISTRIES.search(text)] == []


def test_no_file_holds_a_path_of_somebodys_machine() -> None:
    """What works on one machine alone does not belong here."""
    assert [name for name, text in texts() if _MACHINE_PATHS.search(text)] == []


def test_constraints_and_lock_files_name_no_host() -> None:
    """`uv.lock` records the address of the registry, so none is committed."""
    names = re.compile(r"(constraints|requirements)[^/]*\.txt$|\.lock$|pylock[^/]*\.toml$")
    held = {name: text for name, text in texts() if names.search(name)}
    assert "constraints.txt" in held
    assert [name for name, text in held.items() if "://" in text] == []


def test_every_dependency_has_a_tested_version() -> None:
    """A constraint that is missing would let an untested version in."""
    wanted = []
    for project in projects():
        extras = project.get("optional-dependencies", {}).values()
        wanted += [*project["dependencies"], *chain.from_iterable(extras)]
    constrained = re.findall(r"^([\w-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    names = {re.split(r"[^\w-]", requirement)[0] for requirement in wanted}
    assert names - set(constrained) == {"rewake"}


@pytest.mark.parametrize("package", ["src/rewake", "lab/rewake_lab"])
def test_the_package_says_that_it_is_typed(package: str) -> None:
    """Type checkers ignore the annotations of a package without this file."""
    assert (ROOT / package / "py.typed").is_file()


def test_the_version_is_the_same_everywhere() -> None:
    """Both projects and the package agree; the laboratory fits this Rewake and no other."""
    assert {project["version"] for project in projects()} == {rewake.__version__}
    laboratory = projects()[1]
    assert f"rewake[spark,report]=={rewake.__version__}" in laboratory["dependencies"]


def test_what_users_install_has_no_laboratory_in_it() -> None:
    """No benchmark, no program in another language, no paper: the wheel is of these folders."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert folders == ["src/rewake", "src/pyspark_rewake"]
    packed = [path for path in tracked() if path.is_relative_to(ROOT / "src")]
    assert {path.suffix or path.name for path in packed} == {".py", ".typed", ".properties"}
    words = re.compile(r"bench|nexmark|reproduce|peers")
    assert [str(path) for path in packed if words.search(str(path.relative_to(ROOT)))] == []


def test_no_source_file_is_too_long_to_read() -> None:
    """At 600 lines a file is split by noun."""
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for folder in ("src", "lab")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert {name: length for name, length in lengths.items() if length >= 600} == {}


def test_functions_fit_a_screen() -> None:
    """Longer ones are several ideas."""
    lengths = {
        f"{path.relative_to(ROOT)}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for folder in ("src", "lab/rewake_lab")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: length for name, length in lengths.items() if length > 70} == {}


def test_no_folder_holds_more_than_a_reader_takes_in_at_once() -> None:
    """About fifteen modules; beyond that a folder has rooms."""
    folders = Counter(
        path.parent.relative_to(ROOT)
        for folder in ("src", "lab/rewake_lab")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "__init__.py"
    )
    assert {str(folder): number for folder, number in folders.items() if number > 16} == {}


# --- what tests may know -----------------------------------------------------------------------


def _private(name: str) -> bool:
    return re.fullmatch(r"_[a-zA-Z]\w*", name) is not None


def _named_in(tree: ast.AST) -> set[str]:
    """The names that a module gives to anything of its own."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found |= {node.attr} if ast.unparse(node.value) in ("self", "cls") else set()
    return found


def _reached_for(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of what a module takes from others: attributes, imports, what it patches."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("setattr", "delattr", "getattr", "patch", "object", "multiple")
        ):
            words = (each for each in ast.walk(node) if isinstance(each, ast.Constant))
            named = (each.value for each in words if isinstance(each.value, str))
            yield from ((node.lineno, each.rpartition(".")[2]) for each in named)


# A planted bug is a change of the code itself, not a use of it.
PLANTED = {"tests/sim/test_planted_bugs.py"}


def test_no_test_reaches_into_what_is_private() -> None:
    """Else what may change freely may not: limits are arguments, or constants with a name."""
    sources = [
        path for folder in ("src", "lab/rewake_lab") for path in (ROOT / folder).rglob("*.py")
    ]
    ours = {name for path in sources for name in _named_in(ast.parse(path.read_text()))}
    found = []
    for path in (
        each for folder in ("tests", "lab/tests") for each in (ROOT / folder).rglob("*.py")
    ):
        tree = ast.parse(path.read_text())
        own = _named_in(tree)
        name = str(path.relative_to(ROOT))
        found += [
            f"{name}:{line}: {reached}"
            for line, reached in _reached_for(tree)
            if _private(reached) and reached in ours - own - _SHARED and name not in PLANTED
        ]
    assert found == []


# Names of other people's: of named tuples and notebooks, columns of a stream; and what a
# vocabulary of tests gives to those that derive from it.
_SHARED = {
    "_replace",
    "_fields",
    "_repr_html_",
    "_repr_svg_",
    "_time",
    "_position",
    "_shard",
    "_steps",
}


# --- make and continuous integration -----------------------------------------------------------


def test_continuous_integration_runs_what_a_developer_runs() -> None:
    """One definition of "the tests pass"."""
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert re.search(r"^(exec )?make test$", script.read_text(), re.MULTILINE)


def test_make_alone_lists_every_target() -> None:
    """A stranger types `make` first."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--no-print-directory"]
    listed = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony
    for target in phony.group(1).split():
        assert re.search(rf"^  {target} +\w", listed.stdout, re.MULTILINE), target


def _run_tests_with(folder: Path, on_spark: int, others: int) -> subprocess.CompletedProcess[str]:
    """Run `scripts/test` with a pytest that only says what it was asked for, and these results."""
    folder.mkdir(exist_ok=True)
    (folder / "pytest").write_text(
        '#!/bin/sh\ncase "$*" in\n*"not spark"*) echo "others passed"; exit '
        f'{others} ;;\n*) echo "1 on Spark"; exit {on_spark} ;;\nesac\n'
    )
    (folder / "pytest").chmod(0o755)
    command = [ROOT / "scripts" / "test", folder]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("on_spark", "others"), [(0, 0), (1, 0), (0, 1), (1, 2), (5, 0)])
def test_tests_fail_when_either_half_does_and_both_are_told(
    tmp_path: Path, on_spark: int, others: int
) -> None:
    """Those on Spark run beside the others, with their output kept apart."""
    done = _run_tests_with(tmp_path / "bin", on_spark, others)
    assert (done.returncode == 0) == (on_spark == others == 0)
    lines = done.stdout.splitlines()
    assert lines.index("others passed") < lines.index("1 on Spark")
    told = "tests: {}; tests on Spark: {}".format(
        *("passed" if code == 0 else f"FAILED (exit code {code})" for code in (others, on_spark))
    )
    assert lines[-1] == f"==> {told}"


def test_a_soak_says_first_how_long_it_takes_and_runs_on_after_a_failure(tmp_path: Path) -> None:
    """Nobody starts hours of work to find out that it is hours; one part may be chosen."""
    (tmp_path / "pytest").write_text('#!/bin/sh\necho "ran $REWAKE_WHOLE: $*"\nexit 1\n')
    (tmp_path / "pytest").chmod(0o755)
    command = [ROOT / "scripts" / "soak", tmp_path, "2", "seeds", "nemesis"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.match(r"minutes.*\n +\d+  seeds .*\n +\d+  nemesis .*\n +\d+  in all\n", done.stdout)
    assert re.findall(r"^ran 1: .*(sim|nemesis)$", done.stdout, re.MULTILINE) == ["sim", "nemesis"]
    assert "FAILED: seeds nemesis" in done.stderr


def _fake_python(folder: Path, script: str) -> dict[str, str]:
    """Make a PATH with this python3 before the tools of the system, and no newer ones."""
    folder.mkdir()
    for name in ("python3", "python3.13", "python3.12", "python3.11"):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def _set_up(venv: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [ROOT / "scripts" / "setup", venv]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_set_up_without_a_new_enough_python_says_what_to_install(tmp_path: Path) -> None:
    """And it leaves no stamp, so the next `make` tries again."""
    result = _set_up(tmp_path / "venv", _fake_python(tmp_path / "bin", "exit 1"))
    assert result.returncode == 1
    assert "no Python 3.11 or newer" in result.stderr
    assert "python3-venv" in result.stderr
    assert not (tmp_path / "venv" / ".ready").exists()


def test_set_up_tries_the_next_python_when_the_first_is_too_old(tmp_path: Path) -> None:
    """python3 is often the oldest of several."""
    environ = _fake_python(tmp_path / "bin", "exit 1")
    newer = (
        '#!/bin/sh\ncase "$1" in\n--version) echo Python 3.12.99 ;;\n-m) exit 5 ;;\nesac\nexit 0\n'
    )
    (tmp_path / "bin" / "python3.12").write_text(newer)
    result = _set_up(tmp_path / "venv", environ)
    assert "with Python 3.12.99" in result.stdout
    assert (result.returncode, result.stderr) == (
        1,
        "set-up failed: python3.12 -m venv did not work\n",
    )


def test_set_up_whose_installation_fails_leaves_no_stamp(tmp_path: Path) -> None:
    """Also when an earlier set-up had succeeded."""
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / ".ready").touch()
    (venv / "bin" / "python").write_text(
        '#!/bin/sh\n[ "$3" = --version ] && exit 0\necho "no matching version" >&2\nexit 1\n'
    )
    (venv / "bin" / "python").chmod(0o755)
    result = _set_up(venv, {"PATH": "/usr/bin:/bin"})
    assert result.returncode == 1
    assert "no matching version" in result.stderr
    assert "set-up failed: pip could not install" in result.stderr
    assert not (venv / ".ready").exists()


# --- documents ---------------------------------------------------------------------------------


def runnable(document: Path) -> str:
    """Return a document's Python, each block on its own lines, so that tracebacks fit."""
    text = document.read_text()
    lines = [""] * (text.count("\n") + 1)
    for block in _FENCE.finditer(text):
        if block["info"].split() == ["python"]:
            first = text.count("\n", 0, block.start("code"))
            code = block["code"].splitlines()
            lines[first : first + len(code)] = code
    return "\n".join(lines) + "\n"


def _examples() -> Iterator[object]:
    for document in DOCUMENTS:
        code = runnable(document)
        if code.strip():
            marks = [pytest.mark.spark] if re.search(r"spark", code, re.IGNORECASE) else []
            yield pytest.param(document, id=str(document.relative_to(ROOT)), marks=marks)


@pytest.mark.parametrize("document", list(_examples()))
def test_the_examples_of_a_document_run(document: Path, tmp_path: Path) -> None:
    """In order, in one namespace, in an empty folder."""
    program = tmp_path / f"{document.stem}_examples.py"
    program.write_text(runnable(document))
    (tmp_path / "cwd").mkdir()
    result = subprocess.run(
        [sys.executable, program],
        cwd=tmp_path / "cwd",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def slugs(document: Path) -> set[str]:
    """Return the anchors that a document's headings make."""
    text = _FENCE.sub("", document.read_text())
    headings = re.findall(r"^#+ +(.+?)\s*$", text, re.MULTILINE)
    plain = [re.sub(r"[`*_]|\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", text.lower())) for text in plain}


def links(document: Path) -> Iterator[str]:
    """Yield the targets of a document's links and pictures within the repository."""
    for match in _LINK.finditer(_FENCE.sub("", document.read_text())):
        target = match.group(1) or match.group(2)
        if not re.match(r"[a-z]+:", target):
            yield unquote(target)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_links_of_a_document_lead_somewhere(document: Path) -> None:
    """To a file that is there, and to a heading that is in it."""
    broken = []
    for target in links(document):
        name, _, anchor = target.partition("#")
        path = (document.parent / name) if name else document
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in slugs(path)):
            broken.append(target)
    assert broken == []


def test_the_parser_of_examples_sees_what_it_should(tmp_path: Path) -> None:
    """Other languages and blocks marked no-run are left out; lines keep their numbers."""
    document = tmp_path / "a.md"
    document.write_text("# A b\n```python\nx = 1\n```\n```sh\nno\n```\n```python no-run\nno\n```\n")
    assert runnable(document).splitlines()[2] == "x = 1"
    assert "no" not in runnable(document)
    assert slugs(document) == {"a-b"}

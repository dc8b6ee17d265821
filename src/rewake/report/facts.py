"""Where a run took place and with what: versions, the machine, how busy it was."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rewake import __version__

_PACKAGES = ("pyspark", "pyarrow", "numpy", "numba")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a reader needs to judge figures of a machine that is not theirs."""

    at: str
    rewake: str
    python: str
    system: str
    processor: str
    cores: int
    memory_bytes: int
    load_average: float
    packages: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """For the manifest."""
        return asdict(self)

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> Facts:
        """From the manifest."""
        return cls(**kept)

    def as_rows(self) -> list[tuple[str, str]]:
        """For a page."""
        packages = ", ".join(f"{name} {number}" for name, number in self.packages.items())
        memory = self.memory_bytes / 2**30
        return [
            ("When", self.at),
            ("Rewake", self.rewake),
            ("Python", f"{self.python}; {packages}"),
            ("System", self.system),
            ("Machine", f"{self.processor}; {self.cores} cores, {memory:.1f} GiB"),
            ("Load average", f"{self.load_average:.2f} (over one minute, at the start)"),
        ]  # fmt: skip


def facts_now() -> Facts:
    """The facts of this machine at this moment."""
    return Facts(
        at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        rewake=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}",
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        load_average=round(os.getloadavg()[0], 2),
        packages={name: found for name in _PACKAGES if (found := _version(name))},
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None

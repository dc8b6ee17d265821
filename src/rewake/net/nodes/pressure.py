"""What the system counts of this machine and this process, as Linux tells it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from rewake.recovery.promises.pressure import Counted

__all__ = ["counted_now", "resident_mib"]

_STAT: Final = Path("/proc/stat")
_VMSTAT: Final = Path("/proc/vmstat")
# The ticks of a line of /proc/stat: the eighth is what the host took, and others count the rest.
_TICKS: Final = 8
_PAGE_MB: Final = os.sysconf("SC_PAGESIZE") / 1e6


def counted_now() -> Counted:
    """Up to this moment; zeros where the system does not tell."""
    now_ms = time.monotonic() * 1e3
    try:
        stat = _STAT.read_text(encoding="ascii").splitlines()
        vmstat = _VMSTAT.read_text(encoding="ascii").splitlines()
        ticks = [int(each) for each in stat[0].split()[1 : _TICKS + 1]]
        # Whoever reads this is running, too.
        threads = max(_number(stat, "procs_running") - 1, 0)
        again = _number(vmstat, "workingset_refault_file")
    except (OSError, ValueError, IndexError):
        return Counted(now_ms)
    processors = os.cpu_count() or 1
    return Counted(now_ms, sum(ticks), ticks[-1], again * _PAGE_MB, threads / processors)


def _number(lines: list[str], name: str) -> int:
    found = (line.split() for line in lines)
    return next((int(each[1]) for each in found if each and each[0] == name), 0)


def resident_mib() -> float:
    """Memory of this process that is its own; what it shares with its siblings is not counted."""
    with open("/proc/self/statm") as file:
        _, resident, shared, *_ = file.read().split()
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

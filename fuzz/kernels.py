"""Running the compiled kernels as plain Python.

A compiled kernel that is given a wrong index reads or writes somewhere else, silently.  As plain
Python it raises IndexError, the fuzzer sees which of its branches are taken, and a hang can be
interrupted.  Set NUMBA_DISABLE_JIT=0 to fuzz the compiled kernels instead.
"""

import os
import warnings
from typing import Any

__all__ = ["use_python_kernels"]


def use_python_kernels() -> None:
    """Do so in this process, before any operator is imported."""
    if os.environ.setdefault("NUMBA_DISABLE_JIT", "1") == "1":
        import rewake.operators.columns.prefetch as module

        module.prefetch = _no_hint  # an instruction of the processor: Python has none
        # Hashes are meant to wrap around; numpy warns of it where compiled code does not.
        warnings.filterwarnings("ignore", "overflow encountered", RuntimeWarning)


def _no_hint(_array: Any, _index: Any) -> None:
    """Ask for nothing."""

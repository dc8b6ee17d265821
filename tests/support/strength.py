"""How much of all that could be tried one run tries.

A run has minutes, a week has many runs.  What is always tried are fixed seeds and all tests of
single cases.  What is endless grows from the commit: every change meets seeds that nobody has
tried.  What can be enumerated is enumerated whole where it is about code that has just changed,
and sampled otherwise: every n-th case, other ones with each commit, so that all of them have had
their turn after some n commits.  `make soak` (`REWAKE_WHOLE=1`) enumerates everything.

"Has just changed" means: differs from the first parent of the newest commit (a merge brings all of
its branch), or from the commit that `REWAKE_SINCE` names, which is what a push began from.  Where
git cannot tell, as in a clone without history, everything is taken to have changed.
"""

import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[2]
WHOLE = os.environ.get("REWAKE_WHOLE", "") not in ("", "0")
# Makes random tests longer: `make soak` multiplies their examples, seeds and states.
SCALE = int(os.environ.get("REWAKE_SCALE", "1"))
# One run of a property has so much of its examples; each run has others.
_SHARE = 3

LOG = ("src/rewake/log", "src/rewake/stores", "src/rewake/model", "tests/crash")

Cases = TypeVar("Cases", bound=Sequence)


def _git(*words: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except OSError:
        return None


@cache
def commit() -> int:
    """A number that is the commit's own; without git, always the same one."""
    found = _git("rev-parse", "--short=8", "HEAD")
    return int(found.stdout.strip()[:8], 16) if found and found.returncode == 0 else 0


@cache
def changed(*paths: str) -> bool:
    """Whether one of these files or folders has just changed, or nobody can tell."""
    found = _git("diff", "--quiet", os.environ.get("REWAKE_SINCE", "HEAD^1"), "--", *paths)
    return found is None or found.returncode != 0


def examples(number: int) -> int:
    """How many random examples of a property: all, times the scale, where there is time."""
    return number * SCALE if WHOLE else max(1, number * SCALE // _SHARE)


def whole(*about: str) -> bool:
    """Whether all cases are tried of what is about these files and folders."""
    return WHOLE or changed(*about)


def sampled(cases: Cases, one_in: int, *, about: tuple[str, ...]) -> Cases:
    """All cases where what they are about has just changed; else one in so many, at least one."""
    if whole(*about) or not cases:
        return cases
    return cases[commit() % min(one_in, len(cases)) :: one_in]

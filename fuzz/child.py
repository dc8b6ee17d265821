"""One target under atheris, until libFuzzer ends the process.  Started by `run.py`.

    python fuzz/child.py TARGET FINDINGS UNTIL LIBFUZZER-ARGUMENT...

UNTIL is when to end, by the monotonic clock; `inf` leaves it to the other arguments.

What a target does wrong is saved, and fuzzing goes on; only a crash of the process ends it early.
"""

import inspect
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import FunctionType, ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

MEMORY_BYTES = 4 << 30


def main(target: str, folder: Path, until: float, arguments: list[str]) -> None:
    """Fuzz; never returns."""
    import atheris  # type: ignore[import-untyped, import-not-found, unused-ignore]

    from fuzz.kernels import use_python_kernels

    use_python_kernels()
    from fuzz.findings import Findings, attempt
    from fuzz.mutations import mutated
    from fuzz.seeds import seeds_for

    # What is made once is made now, outside the time limit and the memory limit of an input.
    for seed in seeds_for(target):
        attempt(target, seed, seconds=60)
    _instrument(atheris.instrument_func)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    findings = Findings(target, folder)

    def run(data: bytes) -> None:
        error = attempt(target, data)
        if error is not None:
            findings.keep(data, error)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < 0.3:
            changed: bytes = atheris.Mutate(data, max_size)
            return changed
        for _ in range(random.choice((1, 1, 2, 4))):
            data = mutated(target, data, random)
        return data[:max_size]

    if until < float("inf"):
        arguments.append(f"-max_total_time={max(1, round(until - time.monotonic()))}")
    atheris.Setup([sys.argv[0], *arguments], run, custom_mutator=mutate)
    atheris.Fuzz()


def _instrument(instrument: Callable[[FunctionType], Any]) -> None:
    """Watch the branches of every Python function of Rewake.

    In place and after the import: compiled kernels are left alone, which watching would break.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("rewake."):
            for function in _functions(module):
                instrument(function)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    classes = [each for each in vars(module).values() if inspect.isclass(each)]
    seen = set()
    for owner in (module, *classes):
        for member in list(vars(owner).values()):
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            here = getattr(function, "__module__", "") == module.__name__
            if isinstance(function, FunctionType) and here and function not in seen:
                seen.add(function)
                yield function


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])

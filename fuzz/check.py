"""The targets without atheris: all seeds, all regressions, and mutations grown from one number.

    python fuzz/check.py TARGET MUTATIONS

Prints what was found, if anything; exits with 4 then.  `footprints` belongs into a process of its
own, because it runs the kernels as plain Python.
"""

import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

REGRESSIONS = Path(__file__).resolve().parent / "regressions"


def inputs(target: str, mutations: int) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of the inputs; always the same."""
    from fuzz.mutations import mutated
    from fuzz.seeds import seeds_for

    seeds = seeds_for(target)
    named = [(f"seed {number}", seed) for number, seed in enumerate(seeds)]
    folder = REGRESSIONS / target
    named += [(path.name, path.read_bytes()) for path in sorted(folder.glob("*"))]
    yield from named
    random = Random(target)
    for number in range(mutations):
        name, data = random.choice(named)
        for _ in range(random.choice((1, 1, 2, 3))):
            data = mutated(target, data, random)
        yield f"mutation {number} of {name}", data


def check(target: str, mutations: int) -> list[str]:
    """What came out of a target that must not, as stories."""
    from fuzz.targets import TARGETS

    stories = []
    for name, data in inputs(target, mutations):
        try:
            TARGETS[target](data)
        except Exception as error:
            story = "".join(traceback.format_exception(error))
            stories.append(f"{target}, {name}, {data.hex()[:400]}:\n{story}")
    return stories


if __name__ == "__main__":
    from fuzz.kernels import use_python_kernels

    use_python_kernels()
    found = check(sys.argv[1], int(sys.argv[2]))
    sys.stdout.write("\n".join(found[:5]))
    sys.exit(4 if found else 0)

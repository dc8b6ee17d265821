"""The targets without atheris: all seeds, all regressions, and mutations grown from one number.

    python fuzz/check.py [--dry] MUTATIONS TARGET...

Prints one JSON object; exits with 4 when something was found.  With `--dry` the inputs are made but
not run.  In a process of its own, because the kernels run as plain Python (see `kernels`).
"""

import hashlib
import json
import sys
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

# Far more than an input takes; it is there to end a hang, with a story.
SECONDS_PER_INPUT = 3.0


@dataclass
class Checked:
    """What the inputs of one target came to."""

    target: str
    seeds: int = 0
    regressions: int = 0
    mutations: int = 0
    digest: str = ""  # of all inputs: the same on every machine, every time
    stories: list[str] = field(default_factory=list)


def inputs(target: str, mutations: int, checked: Checked) -> list[tuple[str, bytes]]:
    """Names and bytes of the inputs."""
    from fuzz.mutations import mutated
    from fuzz.seeds import seeds_for

    named = [(f"seed {number}", seed) for number, seed in enumerate(seeds_for(target))]
    checked.seeds = len(named)
    kept = sorted((HERE / "regressions" / target).glob("*"))
    named += [(path.name, path.read_bytes()) for path in kept]
    checked.regressions, checked.mutations = len(kept), mutations
    random = Random(target)
    grown = []
    for number in range(mutations):
        name, data = random.choice(named)
        for _ in range(random.choice((1, 1, 2, 3))):
            data = mutated(target, data, random)
        grown.append((f"mutation {number} of {name}", data))
    return named + grown


def check(target: str, mutations: int, *, dry: bool) -> Checked:
    """Run all inputs of a target."""
    from fuzz.findings import attempt

    checked = Checked(target)
    digest = hashlib.sha256()
    for name, data in inputs(target, mutations, checked):
        digest.update(data)
        error = None if dry else attempt(target, data, seconds=SECONDS_PER_INPUT)
        if error is not None:
            story = "".join(traceback.format_exception(error))
            checked.stories.append(f"{target}, {name}, {data.hex()[:400]}:\n{story}")
    checked.digest = digest.hexdigest()
    return checked


def refused() -> list[str]:
    """Honest histories that recovery refuses, or recovers to another number of windows."""
    from fuzz.operators import operator
    from fuzz.seeds import histories
    from rewake.model.errors import RewakeError
    from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
    from rewake.recovery.policies.policy import OpenOnly

    stories = []
    for case, history in histories():
        try:
            driver = ContinuousEventualCheckpointing.recover(
                operator(case), OpenOnly(), reversed(history)
            )
        except RewakeError as error:
            stories.append(f"operator {case}, {len(history)} frames: {error}")
            continue
        if driver.operator.open_parts != history[-1].open_windows:
            stories.append(f"operator {case}: {driver.operator.open_parts} windows are open")
    return stories


def main(mutations: int, targets: list[str], *, dry: bool) -> int:
    """Check the targets; 4 when something was found."""
    from fuzz.kernels import use_python_kernels

    use_python_kernels()
    outcomes = [check(target, mutations, dry=dry) for target in targets]
    stories = refused() if "footprints" in targets and not dry else []
    json.dump({"targets": [asdict(each) for each in outcomes], "refused": stories}, sys.stdout)
    return 4 if stories or any(each.stories for each in outcomes) else 0


if __name__ == "__main__":
    dry = "--dry" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--dry"]
    sys.exit(main(int(arguments[0]), arguments[1:], dry=dry))

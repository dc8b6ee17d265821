"""A driver in a process of its own: runs the drills' query in a folder, to its end.

    python drill_driver.py FOLDER [NODE POINT HIT LIFE]...

Its source is open from the beginning, unless there is a gate in the folder already.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from drill_queries import TUPLES, averages
from gated_source import open_gate

from rewake.net.kill_points import Fault
from rewake.net.queries.running import start_processes


def main() -> None:
    folder, *words = sys.argv[1:]
    faults = [
        Fault(node, point, int(hit), int(life))
        for node, point, hit, life in zip(*[iter(words)] * 4, strict=True)
    ]
    gate = Path(folder) / "gate"
    if not gate.exists():
        open_gate(gate, TUPLES)
    with start_processes(averages(gate), Path(folder) / "query", faults=faults) as query:
        query.await_start()
        sys.stdout.write("started\n")
        sys.stdout.flush()
        query.await_end()
    sys.stdout.write("ended\n")


if __name__ == "__main__":
    main()

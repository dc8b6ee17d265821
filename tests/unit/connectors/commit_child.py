"""A driver in a process of its own, which is killed at a point of a commit.

    commit_child.py FOLDER BATCH POINT COUNT    die when POINT has been passed COUNT times

It stages and commits batch after batch from BATCH on.
"""

import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from commit_vocabulary import QUERY, commit_numbers

from rewake.connectors.streams.commit import StreamCommit
from rewake.connectors.streams.folder import open_stream
from rewake.node.micro_batches.next_batch import BatchIdentity


def main() -> None:
    folder, first, point, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    left = count

    def die(passed: str) -> None:
        nonlocal left
        left -= passed == point
        if not left:
            time.sleep(0.03)  # for the log's threads: some of the frames should be there
            os.kill(os.getpid(), signal.SIGKILL)

    committer = StreamCommit(open_stream(folder), crash_after=die)
    for batch in range(first, first + 3):
        commit_numbers(committer, BatchIdentity(QUERY, batch))
    committer.close()


if __name__ == "__main__":
    main()

"""Runs examples one after the other as their users would, but in one process: one JVM for all.

    run_programs.py <file for what they printed> <program> [argument ...] [-- <program> ...]

What always holds: every program is run, also when one before it failed.
"""

import contextlib
import io
import json
import runpy
import sys
import traceback
from pathlib import Path


def run(program: str, arguments: list[str]) -> dict[str, str]:
    """Run one program to its end; return what it printed and how it failed, if it did."""
    printed, failure = io.StringIO(), ""
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(Path(program).parent))
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(program, run_name="__main__")
        except BaseException:
            failure = traceback.format_exc()
    sys.path.pop(0)
    return {"printed": printed.getvalue(), "failure": failure}


def main(report: str, *words: str) -> None:
    """Run the programs that the words name."""
    results, rest = {}, list(words)
    while rest:
        end = rest.index("--") if "--" in rest else len(rest)
        program, *arguments = rest[:end]
        results[Path(program).stem] = run(program, arguments)
        rest = rest[end + 1 :]
    Path(report).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])

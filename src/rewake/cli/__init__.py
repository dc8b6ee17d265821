"""The `rewake` command: argument parsing and printing, nothing that another package could do.

Data goes to stdout, progress and errors to stderr.  `main` is the entry point; a command is a
module here and one line in `rewake.cli.app`.
"""

from rewake.cli.app import main

__all__ = ["main"]

"""How the command line takes paths: whatever is no path of this machine is refused."""

from pathlib import Path

__all__ = ["path_of"]


def path_of(text: str | Path) -> Path:
    """The path that an argument names: a parser for typer, which hands over defaults as well."""
    from rewake.stores.places import local_path  # noqa: PLC0415 (keeps --help fast)

    return local_path(text)

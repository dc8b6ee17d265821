"""SQL text with named parameters: finding `:name` where it is one, and putting something in place.

A colon in a string, a quoted name or a comment is not a parameter, nor is one of PostgreSQL's casts
(`::text`) and slices (`[1:2]`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from rewake.model.errors import UsageError

__all__ = ["listed", "parameters_of", "quoted", "quoted_table", "replaced", "single_statement"]

_TOKENS = re.compile(
    r"""
      '(?:[^']|'')*'                              # a string
    | "(?:[^"]|"")*"                              # a quoted name
    | --[^\n]*                                    # a comment to the end of the line
    | /\*.*?\*/                                   # a comment
    | \$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$      # a string between dollars
    | ::                                          # a cast
    | (?<![\w\])]):(?P<name>[A-Za-z_]\w*)         # a parameter
    | ;                                           # an end
    """,
    re.VERBOSE | re.DOTALL,
)


def parameters_of(statement: str) -> tuple[str, ...]:
    """The names of a statement's parameters, each once, in the order in which they come."""
    names = (match["name"] for match in _TOKENS.finditer(statement))
    return tuple(dict.fromkeys(name for name in names if name))


def replaced(
    statement: str, parameter: Callable[[str], str], rest: Callable[[str], str] = str
) -> str:
    """The statement with something in place of each parameter, and of all text between them."""
    parts, end = [], 0
    for match in _TOKENS.finditer(statement):
        if match["name"]:
            parts += [rest(statement[end : match.start()]), parameter(match["name"])]
            end = match.end()
    return "".join([*parts, rest(statement[end:])])


def single_statement(statement: str) -> str:
    """The statement without what may end it; refuses none and several."""
    text = statement.strip()
    ends = [match.start() for match in _TOKENS.finditer(text) if match[0] == ";"]
    if ends and not text[ends[0] :].strip("; \t\r\n"):
        text, ends = text[: ends[0]].rstrip(), []
    if ends:
        raise UsageError(f"{statement!r} holds several statements; give one")
    if not text:
        raise UsageError("there is no statement; give one in SQL")
    return text


def quoted(name: str) -> str:
    """A name as SQL has it, whatever it holds."""
    if "\0" in name or not name:
        raise UsageError(f"{name!r} cannot be a name in SQL")
    return '"' + name.replace('"', '""') + '"'


def quoted_table(name: str) -> str:
    """The name of a table; a dot parts it from that of its schema."""
    return ".".join(quoted(part) for part in name.split("."))


def listed(names: Iterable[str], prefix: str = "") -> str:
    """Quoted names with commas between them."""
    return ", ".join(prefix + quoted(name) for name in names)

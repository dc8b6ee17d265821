"""`NODE@WHEN`: what is to happen to which node, and when.

averages@3s              three seconds after the first result
averages@40%             when 40% of the input has been read
averages@random          at a moment that the seed decides
averages@node.before_durable      at the first passing of a kill point
averages@node.before_durable#5    at the fifth
averages@recovery.replaying~2     in the second life of the node
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from rewake.model.errors import UsageError
from rewake.net.kill_points import POINTS, Fault

_FORM = re.compile(r"^(?P<node>[\w.-]+)@(?P<when>[\w.%-]+?)(#(?P<hit>\d+))?(~(?P<life>\d+))?$")
_SECONDS = re.compile(r"^(\d+(?:\.\d+)?)(ms|s)$")
_PERCENT = re.compile(r"^(\d+(?:\.\d+)?)%$")


@dataclass(frozen=True, slots=True)
class Strike:
    """A kill or pause at a time (seconds after the first result) or a fraction of the input.

    `settled`: not before the node has come back from an earlier one.
    """

    node: str
    action: str
    at_seconds: float | None = None
    at_fraction: float | None = None
    settled: bool = False


# Points that a node passes; the others are in the driver, which is whoever drills.
NODE_POINTS = tuple(point for point in POINTS if not point.startswith("coordinator."))


def in_words(wanted: Strike | Fault) -> str:
    """What `parse` was given, or something that means the same."""
    if isinstance(wanted, Fault):
        return f"{wanted.node}@{wanted.point}#{wanted.hit}~{wanted.life}"
    if wanted.at_fraction is not None:
        return f"{wanted.node}@{wanted.at_fraction * 100:.4g}%"
    return f"{wanted.node}@{wanted.at_seconds:g}s"


def check_nodes(wanted: Iterable[Strike | Fault], nodes: Iterable[str]) -> None:
    """Refuse what is to happen to a node that the query does not have."""
    known = list(nodes)
    for each in wanted:
        if each.node not in known:
            raise UsageError(f"there is no node {each.node!r}; the query has {', '.join(known)}")


def parse(text: str, action: str, random: Random) -> Strike | Fault:
    """What `NODE@WHEN` asks for."""
    match = _FORM.match(text)
    if match is None:
        raise UsageError(f"{text!r} is not NODE@WHEN, for example averages@3s or averages@40%")
    node, when = match["node"], match["when"]
    if seconds := _SECONDS.match(when):
        scale = 1e-3 if seconds[2] == "ms" else 1.0
        return Strike(node, action, at_seconds=float(seconds[1]) * scale)
    if percent := _PERCENT.match(when):
        if not 0 <= float(percent[1]) < 100:
            raise UsageError(f"{text!r}: give a percentage from 0% to below 100%")
        return Strike(node, action, at_fraction=float(percent[1]) / 100)
    if when == "random":
        return Strike(node, action, at_fraction=random.uniform(0.1, 0.9))
    if when not in NODE_POINTS:
        raise UsageError(
            f"{text!r}: {when!r} is neither a time (3s), a share of the input (40%), `random`, nor "
            "a kill point; `rewake drill --points` lists the points"
        )
    return Fault(node, when, int(match["hit"] or 1), int(match["life"] or 1), action)

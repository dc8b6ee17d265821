"""Which server hosts what: the seats of a query, divided among processes.

A *server* is one process or Spark task.  A *seat* is what it hosts: a node, in one of the places
where that node may run.  Unless the query says how many servers there are, each seat has one of its
own.

What always holds: the assignment is a function of the nodes and of the number alone, so a driver
that starts again finds the same one; every seat is hosted once; no server hosts two places of a
node while another has room; of two servers, one hosts at most one seat more than the other.  Where
nodes are hosted is no part of what a query is: its folder can be continued with another number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rewake.model.errors import UsageError

if TYPE_CHECKING:
    from rewake.graph.plan.plan import NodePlan

__all__ = ["Seat", "Server", "assign", "checked_servers", "seats_of"]


@dataclass(frozen=True, slots=True, order=True)
class Seat:
    """A node, in one of its places."""

    node: str
    place: int = 0

    def __str__(self) -> str:
        return f"{self.node}/{self.place}" if self.place else self.node


@dataclass(frozen=True, slots=True)
class Server:
    """One process, and the seats that it hosts, in the order of the plan."""

    name: str
    seats: tuple[Seat, ...]


def checked_servers(servers: Any) -> int | None:
    """`servers` if it is a number of servers, or None."""
    if servers is None or (type(servers) is int and servers > 0):
        return servers
    raise UsageError(
        f"servers is {servers!r}; give the number of processes (or Spark tasks) that share the "
        "nodes, 1 or more, or leave it out: then every node has one of its own"
    )


def seats_of(node: NodePlan) -> tuple[Seat, ...]:
    """The seats that a node takes."""
    return tuple(Seat(node.name, place) for place in range(node.places))


def assign(nodes: Sequence[NodePlan], servers: int | None) -> tuple[Server, ...]:
    """The servers of a query; with a number, at most that many.

    Fragments with the most seats come first, because those are to be apart, and otherwise seats in
    the order of the plan.  Each goes where fewest of its own node are, then fewest shards of its
    fragment, then most of those that it has a channel with, then fewest of all; as long as that
    server has room.
    """
    taken = [(node, seat) for node in nodes for seat in seats_of(node)]
    if servers is None:
        return tuple(Server(str(seat), (seat,)) for _, seat in taken)
    rooms = _Rooms(len(taken), min(servers, len(taken)))
    joined, seats = _neighbours(nodes), Counter(node.fragment for node, _ in taken)
    for node, seat in sorted(taken, key=lambda each: -seats[each[0].fragment]):
        rooms.admit(node, seat, joined[node.name])
    rooms.check_places()
    return tuple(
        Server(f"server-{number}", tuple(seat for _, seat in taken if seat in hosted))
        for number, hosted in enumerate(rooms.seats())
    )


class _Rooms:
    """Servers that are being filled; so many seats over the same for all are for the first."""

    def __init__(self, seats: int, servers: int) -> None:
        self.hosted: list[list[tuple[NodePlan, Seat]]] = [[] for _ in range(servers)]
        self._each, self._over = divmod(seats, servers) if servers else (0, 0)

    def admit(self, node: NodePlan, seat: Seat, joined: set[str]) -> None:
        """Give a seat its server."""

        def cost(server: int) -> tuple[int, ...]:
            here = [each for each, _ in self.hosted[server]]
            own = sum(each.name == node.name for each in here)
            siblings = sum(each.fragment == node.fragment for each in here)
            neighbours = sum(each.name in joined for each in here)
            return own, siblings, -neighbours, len(here), server

        self.hosted[min(self._with_room(), key=cost)].append((node, seat))

    def check_places(self) -> None:
        """Two places of a node on one server would end together, and with them what they hold."""
        for hosted in self.hosted:
            names = [seat.node for _, seat in hosted]
            twice = next((each for each in names if names.count(each) > 1), None)
            if twice is not None:
                raise UsageError(
                    f"servers={len(self.hosted)}: two places of node {twice!r} would be on one "
                    "server, and would end together; give the query more servers"
                )

    def seats(self) -> list[set[Seat]]:
        """What each server hosts."""
        return [{seat for _, seat in hosted} for hosted in self.hosted]

    def _with_room(self) -> Iterable[int]:
        fuller = sum(len(each) > self._each for each in self.hosted)
        room = self._each + (1 if fuller < self._over else 0)
        return [number for number, each in enumerate(self.hosted) if len(each) < room]


def _neighbours(nodes: Sequence[NodePlan]) -> dict[str, set[str]]:
    """Who shares a channel with each node."""
    found: dict[str, set[str]] = {node.name: set() for node in nodes}
    for node in nodes:
        for each in node.inputs:
            if each.upstream is not None:
                found[node.name].add(each.upstream)
                found[each.upstream].add(node.name)
    return found

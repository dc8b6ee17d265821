"""Which NEXMark event is where: the arithmetic of event numbers.

Every event has a number.  Of 50 events in a row the first is a person, the next three are auctions,
the other 46 are bids.  An event's number decides its kind, its id and its time.

The place of an event is when it comes.  Without disorder, places are numbers.  With disorder by
groups of n, the event at place e has number floor(e/n)*n + (953*e mod n): the events of each group
of n are shuffled, and none leaves its group.

A position counts the tuples of one kind in the order of their places.  As no event leaves its
group, the tuple at position k is in the group of the k-th event of its kind by number.  That is how
any position is found without looking at what lies before.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "AUCTION",
    "BID",
    "FIRST_AUCTION",
    "FIRST_PERSON",
    "IN_ALL",
    "KINDS",
    "PERSON",
    "SHUFFLE_FACTOR",
    "Int64s",
    "Located",
    "auctions_made",
    "kind_of",
    "located",
    "number_at",
    "persons_made",
    "shuffled",
    "tuples_before",
]

Int64s = NDArray[np.int64]

FIRST_PERSON: Final = 1000
FIRST_AUCTION: Final = 1000
# The values of column `kind`.
PERSON, AUCTION, BID = 0, 1, 2
# Of so many events in a row ...
IN_ALL: Final = 50
# ... those of a kind begin at the first number and are as many as the second.
KINDS: Final = {"persons": (0, 1), "auctions": (1, 3), "bids": (4, 46), "events": (0, 50)}
_PERSONS, _AUCTIONS = KINDS["persons"][1], KINDS["auctions"][1]
# A prime: it shuffles groups of every size that is not a multiple of it.
SHUFFLE_FACTOR: Final = 953


class Located(NamedTuple):
    """Events by number, and the place of each; in the order of places."""

    numbers: Int64s
    places: Int64s


def number_at(kind: str, position: Any) -> Any:
    """The number of the event at this position among those of its kind, ordered by number."""
    first, count = KINDS[kind]
    return position // count * IN_ALL + first + position % count


def tuples_below(kind: str, number: int) -> int:
    """How many events of a kind have smaller numbers."""
    first, count = KINDS[kind]
    rounds, rest = divmod(number, IN_ALL)
    return rounds * count + min(max(rest - first, 0), count)


def shuffled(places: Int64s, group: int) -> Int64s:
    """The numbers of the events at these places."""
    if group == 1:
        return places
    return places // group * group + places * SHUFFLE_FACTOR % group


def tuples_before(kind: str, place: int, group: int) -> int:
    """How many events of a kind come before a place: the positions in that prefix."""
    begun = place // group * group
    numbers = shuffled(np.arange(begun, place, dtype=np.int64), group)
    return tuples_below(kind, begun) + int(np.count_nonzero(_of_kind(kind, numbers)))


def located(kind: str, start: int, stop: int, group: int) -> Located:
    """The events of a kind at positions `start` to `stop - 1`."""
    if group == 1 or start == stop:
        numbers = number_at(kind, np.arange(start, stop, dtype=np.int64))
        return Located(numbers, numbers)
    first = number_at(kind, start) // group * group
    last = number_at(kind, stop - 1) // group * group
    places = np.arange(first, last + group, dtype=np.int64)
    numbers = shuffled(places, group)
    mine = np.flatnonzero(_of_kind(kind, numbers))
    before = tuples_below(kind, first)
    mine = mine[start - before : stop - before]
    return Located(numbers[mine], places[mine])


def _of_kind(kind: str, numbers: Int64s) -> NDArray[np.bool_]:
    first, count = KINDS[kind]
    rest = numbers % IN_ALL
    return (rest >= first) & (rest < first + count)


def kind_of(numbers: Int64s) -> NDArray[np.int8]:
    """PERSON, AUCTION or BID."""
    rest = numbers % IN_ALL
    auctions = rest >= KINDS["auctions"][0]
    return auctions.astype(np.int8) + (rest >= KINDS["bids"][0])


def persons_made(numbers: Int64s) -> Int64s:
    """How many persons there are up to and with these events; at least one."""
    return numbers // IN_ALL * _PERSONS + _PERSONS


def auctions_made(numbers: Int64s) -> Int64s:
    """How many auctions there are up to and with these events."""
    so_far = np.clip(numbers % IN_ALL - KINDS["auctions"][0] + 1, 0, _AUCTIONS)
    return numbers // IN_ALL * _AUCTIONS + so_far

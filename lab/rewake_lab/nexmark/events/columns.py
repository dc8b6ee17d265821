"""The columns of persons, auctions and bids, each made only when somebody asks for it.

Where the two public generators differ, this follows the older one (Apache Beam's): a bid has no
channel and no url, and a bidder's id is counted from 1000 once, not twice.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from rewake_lab.nexmark.events import texts
from rewake_lab.nexmark.events.draws import Draws
from rewake_lab.nexmark.events.numbers import (
    FIRST_AUCTION,
    FIRST_PERSON,
    IN_ALL,
    KINDS,
    Int64s,
    Located,
    auctions_made,
    persons_made,
)

__all__ = ["TIME", "Auctions", "Bids", "Persons", "Settings", "Tuples"]

TIME: Final = pa.timestamp("ms")

FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5
# The hot one of so many persons or auctions in a row is the first (of bidders: the second).
HOT_AMONG: Final = 100
IN_FLIGHT: Final = 100
ACTIVE_PERSONS: Final = 1000
# Ids may be of persons and auctions that come only later, by at most so many.
LEAD: Final = 10
# An auction is open for as long as it takes, on average, to make as many as are in flight.
AUCTION_EVENTS: Final = IN_FLIGHT * IN_ALL // KINDS["auctions"][1]

PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100
_NUMBER_BYTES: Final = 8

STATES: Final = ["AZ", "CA", "ID", "OR", "WA", "WY"]
CITIES: Final = [
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle",
    "Kent", "Cheyenne",
]  # fmt: skip
FIRST_NAMES: Final = [
    "Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter",
]  # fmt: skip
LAST_NAMES: Final = [
    "Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris",
]  # fmt: skip
_NAMES: Final = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]


class Settings(Protocol):
    """What decides the columns of an event, beside its number and place."""

    @property
    def seed(self) -> int:
        """Another seed, another stream."""

    @property
    def hot_auctions(self) -> int:
        """A bid is for a hot auction with probability 1 - 1/this."""

    @property
    def hot_sellers(self) -> int:
        """An auction is of a hot seller with probability 1 - 1/this."""

    @property
    def hot_bidders(self) -> int:
        """A bid is of a hot bidder with probability 1 - 1/this."""

    def times_ms(self, numbers: Int64s) -> Int64s:
        """The event times of the events with these numbers."""


class Tuples:
    """Some events of one kind; column `emitted` is when each comes, whatever its event time."""

    def __init__(self, settings: Settings, events: Located) -> None:
        self.settings = settings
        self.numbers = events.numbers
        self._places = events.places
        self.draws = Draws(settings.seed, events.numbers)
        self._made: dict[str, pa.Array] = {}

    def column(self, name: str) -> pa.Array:
        """The column of that name."""
        if name not in self._made:
            made = getattr(self, f"_{name}")()
            self._made[name] = made if isinstance(made, pa.Array) else pa.array(made)
        return self._made[name]

    def _time(self) -> pa.Array:
        return pa.array(self.settings.times_ms(self.numbers)).cast(TIME)

    def _emitted(self) -> pa.Array:
        return pa.array(self.settings.times_ms(self._places)).cast(TIME)

    def _text_bytes(self, *names: str) -> Int64s:
        sizes = [texts.lengths(self.column(name)) for name in names]
        total: Int64s = np.add.reduce(np.stack(sizes))
        return total

    def _cold_person(self, purpose: str) -> Int64s:
        """One of the active persons, or of those who come next; counted from 0."""
        persons = persons_made(self.numbers)
        active = np.minimum(persons, ACTIVE_PERSONS)
        return persons - active + self.draws.below(purpose, active + LEAD)

    def _hot_person(self) -> Int64s:
        return (persons_made(self.numbers) - 1) // HOT_AMONG * HOT_AMONG


class Persons(Tuples):
    """Persons: who may sell and bid."""

    def _id(self) -> Int64s:
        return FIRST_PERSON + persons_made(self.numbers) - 1

    def _name(self) -> pa.Array:
        return texts.chosen(_NAMES, self.draws.below("name", len(_NAMES)))

    def _email(self) -> pa.Array:
        return texts.joined(
            texts.text(self.draws, "email_user", 7),
            "@",
            texts.text(self.draws, "email_host", 5),
            ".com",
        )

    def _card(self) -> pa.Array:
        return texts.cards(self.draws)

    def _city(self) -> pa.Array:
        return texts.chosen(CITIES, self.draws.below("city", len(CITIES)))

    def _state(self) -> pa.Array:
        return texts.chosen(STATES, self.draws.below("state", len(STATES)))

    def _extra(self) -> pa.Array:
        used = _NUMBER_BYTES + self._text_bytes("name", "email", "card", "city", "state")
        return texts.filling(self.draws, used, PERSON_BYTES)


class Auctions(Tuples):
    """Auctions: what is sold, by whom, until when."""

    def _id(self) -> Int64s:
        return FIRST_AUCTION + auctions_made(self.numbers) - 1

    def _item(self) -> pa.Array:
        return texts.text(self.draws, "item", 20)

    def _description(self) -> pa.Array:
        return texts.text(self.draws, "description", 100)

    def _initialBid(self) -> Int64s:  # noqa: N802 - as the column is called
        return self.draws.prices("initialBid")

    def _reserve(self) -> Int64s:
        opening: Int64s = self.column("initialBid").to_numpy()
        return opening + self.draws.prices("reserve")

    def _expires(self) -> pa.Array:
        opened = self.settings.times_ms(self.numbers)
        average = self.settings.times_ms(self.numbers + AUCTION_EVENTS) - opened
        open_ms = 1 + self.draws.below("expires", np.maximum(2 * average, 1))
        return pa.array(opened + open_ms).cast(TIME)

    def _seller(self) -> Int64s:
        hot = self.draws.hot("seller_hot", self.settings.hot_sellers)
        return FIRST_PERSON + np.where(hot, self._hot_person(), self._cold_person("seller"))

    def _category(self) -> Int64s:
        return FIRST_CATEGORY + self.draws.below("category", CATEGORIES)

    def _extra(self) -> pa.Array:
        used = 6 * _NUMBER_BYTES + self._text_bytes("item", "description")
        return texts.filling(self.draws, used, AUCTION_BYTES)


class Bids(Tuples):
    """Bids: who offers what in which auction."""

    def _auction(self) -> Int64s:
        last = auctions_made(self.numbers) - 1
        oldest = np.maximum(last - IN_FLIGHT, 0)
        cold = oldest + self.draws.below("auction", last - oldest + 1 + LEAD)
        hot = self.draws.hot("auction_hot", self.settings.hot_auctions)
        return FIRST_AUCTION + np.where(hot, last // HOT_AMONG * HOT_AMONG, cold)

    def _bidder(self) -> Int64s:
        hot = self.draws.hot("bidder_hot", self.settings.hot_bidders)
        # The second of a hundred: the first is the hot seller.
        return FIRST_PERSON + np.where(hot, self._hot_person() + 1, self._cold_person("bidder"))

    def _price(self) -> Int64s:
        return self.draws.prices("price")

    def _extra(self) -> pa.Array:
        used = np.full(self.numbers.size, 4 * _NUMBER_BYTES)
        return texts.filling(self.draws, used, BID_BYTES)

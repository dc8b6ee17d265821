"""The NEXMark stream: the facts of the benchmark, and a function of seed and number alone."""

import math
import re
from collections.abc import Iterator
from hashlib import sha256
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewake.model.errors import SchemaMismatch, UsageError
from rewake_lab.nexmark.events import SCHEMAS, NexmarkStream

KINDS = ["persons", "auctions", "bids", "events"]
FIRST_MS = 1_436_918_400_000
STREAM = NexmarkStream(7)
groups = st.sampled_from([1, 2, 7, 50, 64, 1000, 1024])


def values(table: pa.Table, column: str) -> np.ndarray:
    """A column as numbers; times in milliseconds."""
    found = table[column]
    return (found.cast(pa.int64()) if pa.types.is_timestamp(found.type) else found).to_numpy()


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    """The first 200,000 events by kind."""
    return {kind: STREAM.table(kind, 200_000) for kind in KINDS[:3]}


# --- numbers, kinds and ids ----------------------------------------------------------------------


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_rest_bids() -> None:
    """Persons first, then auctions."""
    kinds = STREAM.batch("events", 0, 200).column("kind").to_pylist()
    assert kinds == ([0] + [1] * 3 + [2] * 46) * 4
    assert [STREAM.tuples(kind, 50) for kind in KINDS] == [1, 3, 46, 50]


def test_ids_count_from_a_thousand(tables: dict[str, pa.Table]) -> None:
    """Without gaps; categories are 10 to 14, about as often."""
    for kind in ("persons", "auctions"):
        rows = tables[kind].num_rows
        assert values(tables[kind], "id").tolist() == list(range(1000, 1000 + rows))
    categories = np.bincount(values(tables["auctions"], "category"), minlength=15)
    assert categories.size == 15
    assert categories[:10].sum() == 0
    assert 2200 < categories[10:].min() <= categories.max() < 2600


def numbers_of(kind: str, count: int) -> list[int]:
    """The numbers of the first events of a kind."""
    wanted = {"persons": range(1), "auctions": range(1, 4), "bids": range(4, 50)}[kind]
    return [number for number in range(count) if number % 50 in wanted]


@pytest.mark.parametrize(
    ("kind", "column", "ratio"),
    [("bids", "auction", 2), ("bids", "bidder", 4), ("auctions", "seller", 4)],
)
def test_all_but_one_of_so_many_choices_are_hot(
    tables: dict[str, pa.Table], kind: str, column: str, ratio: int
) -> None:
    """The hot one is the first of the last hundred, of bidders the second."""
    found = values(tables[kind], column) - 1000
    numbers = np.array(numbers_of(kind, 200_000))
    last = numbers // 50
    if column == "auction":
        last = last * 3 + 2
    hot = last // 100 * 100 + (column == "bidder")
    # A cold choice hits the hot one by chance, seldom.
    share = np.count_nonzero(found == hot) / found.size
    assert 1 - 1 / ratio - 0.01 < share < 1 - 1 / ratio + 0.02


@pytest.mark.parametrize("start", [0, 5_000, 20_000])
def test_cold_choices_are_of_those_in_flight_and_a_few_to_come(start: int) -> None:
    """The last auction, the 100 before and 10 ahead; 1,000 active persons and 10 ahead."""
    stream = NexmarkStream(3, hot_auctions=1, hot_sellers=1, hot_bidders=1)
    bids = stream.batch("bids", start * 46 // 50, start * 46 // 50 + 2000)
    auctions, bidders = (bids.column(name).to_numpy() - 1000 for name in ("auction", "bidder"))
    numbers = np.array([each for each in range(start, start + 3000) if each % 50 >= 4][:2000])
    last_auction, persons = numbers // 50 * 3 + 2, numbers // 50 + 1
    ages = last_auction - auctions
    assert ages.min() == -10
    assert np.all(auctions >= np.maximum(last_auction - 100, 0))
    ahead = bidders - persons
    assert ahead.max() == 9
    assert np.all(bidders >= np.maximum(persons - 1000, 0))
    if start:
        assert ages.max() == 100


def test_prices_are_even_on_a_logarithmic_scale(tables: dict[str, pa.Table]) -> None:
    """round(10**(6u) * 100); a reserve is the initial bid and another price."""
    prices = values(tables["bids"], "price")
    assert 100 <= prices.min() < 101
    assert 99_900_000 < prices.max() <= 100_000_000
    decades = np.histogram(np.log10(prices), bins=np.arange(2, 9))[0] / prices.size
    assert np.all(np.abs(decades - 1 / 6) < 0.005)
    above = values(tables["auctions"], "reserve") - values(tables["auctions"], "initialBid")
    assert above.min() >= 100
    assert above.max() <= 100_000_000


@pytest.mark.parametrize("rate", [100, 10_000, 1_000_000])
def test_auctions_expire_after_as_long_as_a_hundred_auctions_take_on_average(rate: int) -> None:
    """Time + 1 + U[0, 2h), where h is the time of 100 * 50 / 3 events."""
    table = NexmarkStream(5, events_per_second=rate).table("auctions", 100_000)
    open_ms = values(table, "expires") - values(table, "time")
    average_ms = 1666 * 1000 / rate
    assert open_ms.min() >= 1
    assert open_ms.max() <= 2 * math.ceil(average_ms)
    assert abs(open_ms.mean() - average_ms) < 0.02 * average_ms + 1


def test_times_are_in_milliseconds_at_ten_thousand_events_per_second() -> None:
    """Ten events share one; other rates are exact too."""
    times = values(pa.table(STREAM.batch("events", 0, 1000)), "time")
    assert times.tolist() == [FIRST_MS + number // 10 for number in range(1000)]
    odd = values(NexmarkStream(1, events_per_second=7).table("events", 1000, ["time"]), "time")
    assert odd.tolist() == [FIRST_MS + number * 1000 // 7 for number in range(1000)]


# --- texts ---------------------------------------------------------------------------------------


def test_texts_have_letters_and_blanks_and_no_blanks_at_their_ends(
    tables: dict[str, pa.Table],
) -> None:
    """Items have less than 20 characters, descriptions less than 100, a blank once in 13."""
    for column, most in (("item", 20), ("description", 100)):
        found = tables["auctions"][column].to_pylist()
        assert max(map(len, found)) == most - 1
        assert all(re.fullmatch(r"([a-z]([a-z ]*[a-z])?)?", text) for text in found)
    whole = "".join(tables["auctions"]["description"].to_pylist())
    assert abs(whole.count(" ") / len(whole) - 1 / 13) < 0.005
    assert all(abs(whole.count(letter) / len(whole) - 12 / 13 / 26) < 0.002 for letter in "amz")


def test_persons_have_names_cities_states_addresses_and_cards(tables: dict[str, pa.Table]) -> None:
    """11 first and 9 last names, 10 cities, 6 states; all of them occur."""
    persons = tables["persons"]
    names = [name.split() for name in persons["name"].to_pylist()]
    assert [len(set(column)) for column in zip(*names, strict=True)] == [11, 9]
    assert len(set(persons["city"].to_pylist())) == 10
    assert set(persons["state"].to_pylist()) == {"AZ", "CA", "ID", "OR", "WA", "WY"}
    cards = persons["card"].to_pylist()
    assert all(re.fullmatch(r"\d{4} \d{4} \d{4} \d{4}", card) for card in cards)
    assert len(set(cards)) == len(cards)
    emails = persons["email"].to_pylist()
    assert all(re.fullmatch(r"[a-z ]{0,6}@[a-z ]{0,4}\.com", email) for email in emails)


@pytest.mark.parametrize(
    ("kind", "size", "numbers", "text"),
    [
        ("persons", 200, 1, ["name", "email", "card", "city", "state"]),
        ("auctions", 500, 6, ["item", "description"]),
        ("bids", 100, 4, []),
    ],
)
def test_filling_brings_tuples_to_their_size(
    tables: dict[str, pa.Table], kind: str, size: int, numbers: int, text: list[str]
) -> None:
    """What is missing, give or take 20%; it consists of letters."""
    rows = tables[kind].slice(0, 5000).to_pylist()
    missing = [size - 8 * numbers - sum(len(row[name]) for name in text) for row in rows]
    extra = [row["extra"] for row in rows]
    for wanted, found in zip(missing, map(len, extra), strict=True):
        fifth = math.floor(wanted * 0.2 + 0.5)
        assert wanted - fifth <= found < wanted + fifth
    assert abs(sum(map(len, extra)) / sum(missing) - 1) < 0.01
    assert all(re.fullmatch("[a-z]+", each) for each in extra)


# --- order ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [2, 7, 50, 1000])
def test_events_are_shuffled_within_groups(group: int) -> None:
    """The number is floor(e/n)*n + (953*e mod n); none is left out, none comes twice."""
    stream = NexmarkStream(1, events_per_second=1000, out_of_order=group)
    numbers = values(stream.table("events", 3 * group, ["time"]), "time") - FIRST_MS
    expected = [e // group * group + 953 * e % group for e in range(3 * group)]
    assert numbers.tolist() == expected
    assert sorted(expected) == list(range(3 * group))


@pytest.mark.parametrize("rate", [3, 1000, 7_001])
@pytest.mark.parametrize("group", [1, 2, 64, 1000])
def test_a_time_falls_back_by_no_more_than_the_disorder(group: int, rate: int) -> None:
    """Who allows for so much slack loses no tuple."""
    stream = NexmarkStream(1, events_per_second=rate, out_of_order=group)
    times = values(stream.table("events", 5 * group, ["time"]), "time")
    assert (np.maximum.accumulate(times) - times).max() <= stream.disorder_ms
    assert stream.disorder_ms < (group - 1) * 1000 / rate + 1


@pytest.mark.parametrize("group", [1, 7, 64])
def test_the_event_of_a_number_is_the_same_wherever_it_comes(group: int) -> None:
    """Disorder changes when an event comes, and nothing else."""
    ordered = NexmarkStream(4, 1000).table("events", 64 * 7 * 5)
    stream = NexmarkStream(4, 1000, out_of_order=group)
    assert stream.table("events", 64 * 7 * 5).sort_by("time").equals(ordered.combine_chunks())


@pytest.mark.parametrize("group", [1, 7, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_no_tuple_comes_with_a_time_below_the_watermark(kind: str, group: int) -> None:
    """From any position on; and the watermark is that of the group: it cannot be higher."""
    stream = NexmarkStream(2, events_per_second=1000, out_of_order=group)
    times = values(stream.table(kind, 64 * 70, ["time"]), "time")
    least = np.minimum.accumulate(times[::-1])[::-1]
    marks = np.array([stream.watermark(kind, position) for position in range(times.size)])
    assert np.all(marks <= least)
    assert np.all(np.diff(marks) >= 0)
    assert np.all((times - FIRST_MS) // group == (marks - FIRST_MS) // group)


@given(st.integers(0, 2**64), groups, st.sampled_from(KINDS), st.integers(0, 2**40), st.data())
@settings(max_examples=60)
def test_a_stream_is_the_same_however_it_is_cut(
    seed: int, group: int, kind: str, first: int, data: Any
) -> None:
    """Replay may begin at any position, and must see what was seen before."""
    stream = NexmarkStream(seed, out_of_order=group)
    cuts = data.draw(st.lists(st.integers(first, first + 300), min_size=2, max_size=5).map(sorted))
    whole = stream.batch(kind, cuts[0], cuts[-1])
    whole.validate(full=True)
    pieces = [stream.batch(kind, a, b) for a, b in pairwise(cuts)]
    joined = pa.Table.from_batches(pieces, SCHEMAS[kind])
    assert joined.equals(pa.Table.from_batches([whole], SCHEMAS[kind]))


@given(groups, st.integers(0, 3000))
@settings(max_examples=30)
def test_persons_auctions_and_bids_together_are_the_events(group: int, events: int) -> None:
    """Each kind in the order in which its events come."""
    stream = NexmarkStream(9, out_of_order=group)
    whole = stream.table("events", events, [*SCHEMAS["events"].names, "emitted"])
    assert whole.num_rows == events
    for value, kind in enumerate(KINDS[:3]):
        names = [*SCHEMAS[kind].names, "emitted"]
        mine = whole.filter(pa.compute.equal(whole["kind"], value))
        assert mine.select(names).equals(stream.table(kind, events, names))
        others = [name for name in whole.column_names if name not in {*names, "kind"}]
        assert all(mine[name].null_count == mine.num_rows for name in others)


# --- draws ---------------------------------------------------------------------------------------


def scrambled(value: int) -> int:
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
    return value ^ (value >> 31)


def bid_by_the_formula(seed: int, number: int) -> Iterator[int]:
    """Auction, bidder and price of a bid, in plain numbers."""
    odd = 0x9E3779B97F4A7C15
    root = scrambled((number * odd + scrambled(seed % 2**64)) % 2**64)

    def word(purpose: int) -> int:
        return scrambled((root + (64 * purpose + 1) * odd) % 2**64)

    def below(purpose: int, limit: int) -> int:
        return (word(purpose) >> 32) * limit >> 32

    last = number // 50 * 3 + 2
    oldest = max(last - 100, 0)
    cold = oldest + below(19, last - oldest + 11)
    yield 1000 + (last // 100 * 100 if below(18, 2) else cold)
    people = number // 50 + 1
    active = min(people, 1000)
    hot = (people - 1) // 100 * 100 + 1
    yield 1000 + (hot if below(20, 4) else people - active + below(21, active + 10))
    yield math.floor(10 ** (6 * (word(22) % 2**32) / 2**32) * 100 + 0.5)


@given(st.integers(0, 2**64), st.integers(0, 2**40))
@settings(max_examples=40)
def test_bids_are_the_formula(seed: int, start: int) -> None:
    """Streams of earlier runs must not change with the way they are computed."""
    bids = NexmarkStream(seed).batch("bids", start, start + 20, ["auction", "bidder", "price"])
    for position, found in enumerate(bids.to_pylist(), start):
        auction, bidder, price = bid_by_the_formula(seed, position // 46 * 50 + 4 + position % 46)
        assert (found["auction"], found["bidder"]) == (auction, bidder)
        # The formula's power may be off in its last bit.
        assert abs(found["price"] - price) <= 1


def test_the_first_events_are_those_of_earlier_versions() -> None:
    """A query that recovers with a newer version must find the stream that it knows."""
    rows = (
        NexmarkStream(1)
        .table("events", 1000)
        .cast(pa.schema([(each.name, _plain(each.type)) for each in SCHEMAS["events"]]))
    )
    assert sha256(repr(rows.to_pylist()).encode()).hexdigest() == (
        "d41ecf4d598a4cf862b635842dc52a7104770cbb077a566fc655ca915804cad3"
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def test_another_seed_is_another_stream() -> None:
    """Of what is drawn; ids and times are the same."""
    for kind, drawn in (("persons", "card"), ("auctions", "reserve"), ("bids", "price")):
        first, second = (NexmarkStream(seed).batch(kind, 0, 200) for seed in (1, 2))
        assert not first.column(drawn).equals(second.column(drawn))
        assert first.column("time").equals(second.column("time"))


# --- columns and settings ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_the_same_alone(kind: str) -> None:
    """Who needs few columns need not make the others."""
    stream = NexmarkStream(6, out_of_order=7)
    whole = stream.batch(kind, 10, 150)
    assert whole.schema.equals(SCHEMAS[kind])
    for name in SCHEMAS[kind].names:
        assert stream.batch(kind, 10, 150, [name]).column(0).equals(whole.column(name))


def test_columns_that_are_not_there_are_refused() -> None:
    """With those that are."""
    for columns in (["price", "cost"], [], ["price", "price"]):
        with pytest.raises(SchemaMismatch, match="auction, bidder, price, time, extra, emitted"):
            STREAM.batch("bids", 0, 1, columns)


@pytest.mark.parametrize(
    "refused",
    [
        {"out_of_order": 0},
        {"out_of_order": 953},
        {"out_of_order": 1906},
        {"out_of_order": 2**21},
        {"events_per_second": 0},
        {"hot_auctions": 0},
        {"hot_sellers": -1},
        {"hot_bidders": 2**40},
    ],
)
def test_impossible_settings_are_refused(refused: dict[str, int]) -> None:
    """A group of 953 would repeat events: the factor of the shuffle is 953."""
    with pytest.raises(UsageError, match=next(iter(refused))):
        NexmarkStream(1, **refused)


def test_kinds_and_sizes_that_are_not_there_are_refused() -> None:
    """Before anything is made."""
    with pytest.raises(UsageError, match="persons, auctions, bids, events"):
        STREAM.tuples("sellers", 10)
    for start, stop in ((5, 4), (0, 2**20 + 1)):
        with pytest.raises(UsageError, match="in one batch"):
            STREAM.batch("bids", start, stop)

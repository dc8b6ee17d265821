"""How a node of a cycle finds out that nothing goes around any more."""

from collections.abc import Sequence
from random import Random

import pyarrow as pa
import pytest

from rewake.graph.plan.plan import InputPlan
from rewake.log.frame import Frame, Section
from rewake.model.stream_event import END_OF_TIME, IDLE, TIME_LIMIT, StreamEvent
from rewake.node.channels.input_merge import InputMerge, Taken
from rewake.node.channels.rounds import Rounds, Step, Token, is_token
from rewake.node.messages import Packet

SCHEMA = pa.schema([("value", pa.int64())])
# An entrance: what comes from outside, and what comes back.
OUTSIDE = InputPlan("items", SCHEMA, "items")
BACK = InputPlan("back", SCHEMA, "back", inside=True, around=True)
AHEAD = InputPlan("ahead", SCHEMA, "ahead", inside=True)


def merge_of(*inputs: InputPlan, heads: int = 1) -> InputMerge:
    return InputMerge(
        [SCHEMA] * len(inputs),
        rounds=Rounds(inputs, heads),
        inside=[each.inside for each in inputs],
        around=[each.around for each in inputs],
    )


def event(position: int, rows: int, watermark: int | None = None) -> StreamEvent:
    batch = pa.RecordBatch.from_pydict({"value": list(range(rows))}, schema=SCHEMA)
    return StreamEvent(position, batch, watermark)


def ends(position: int) -> Packet:
    return Packet(position, position, final=True)


def token(position: int, *said: int) -> Packet:
    return Packet(position, position, watermark=Token(*said).packed())


def all_turns(merge: InputMerge) -> list[Taken]:
    found = []
    while (taken := merge.take()) is not None:
        found.append(taken)
    return found


def said(turns: Sequence[Taken]) -> list[Token | int]:
    """The tokens and watermarks that leave, in order."""
    found: list[Token | int] = []
    for each in turns:
        if each.token is not None:
            found.append(Token.unpacked(each.token))
        elif each.passed_on is not None:
            found.append(each.passed_on)
    return found


@pytest.mark.parametrize("reached", [0, 5, 1 << 25])
@pytest.mark.parametrize("ago", [0, 1, 16_383])
def test_a_token_stands_in_place_of_a_watermark(reached: int, ago: int) -> None:
    """Above every time, below what has a meaning of its own; what was long ago stays so."""
    given = Token(reached, reached - ago, reached)
    assert TIME_LIMIT < given.packed() < IDLE
    assert is_token(given.packed())
    assert Token.unpacked(given.packed()) == given
    assert not any(is_token(each) for each in (None, 0, TIME_LIMIT, IDLE, END_OF_TIME))


def test_what_is_older_than_a_token_can_say_is_as_old_as_it_can_say() -> None:
    """Never older: what moved must not be forgotten."""
    assert Token.unpacked(Token(20_000, -1, -1).packed()) == Token(20_000, 3_617, 3_617)


def test_nobody_waits_for_the_time_of_what_comes_back() -> None:
    """It is no more than what was told before: it would wait for itself."""
    merge = merge_of(OUTSIDE, BACK)
    merge.offer(0, event(0, 2, watermark=50))
    assert said(all_turns(merge)) == [50]
    merge.offer(1, event(0, 1, watermark=40))
    assert said(all_turns(merge)) == []


def test_no_token_leaves_before_all_from_outside_has_ended() -> None:
    """Else something could still enter behind it."""
    merge = merge_of(OUTSIDE, BACK)
    merge.offer(0, event(0, 2))
    assert said(all_turns(merge)) == []
    merge.offer(0, ends(2))
    assert said(all_turns(merge)) == [Token(0, 0, 0)]


def test_an_entrance_ends_when_rounds_bring_nothing_twice() -> None:
    """Once for what went around, then for what the end of time has made."""
    merge = merge_of(OUTSIDE, BACK)
    merge.offer(0, event(0, 2))
    merge.offer(0, ends(2))
    assert said(all_turns(merge)) == [Token(0, 0, 0)]
    merge.offer(1, event(0, 1))
    merge.offer(1, token(1, 0, 0, 0))
    assert said(all_turns(merge)) == [Token(1, 1, 1)]
    merge.offer(1, token(1, 1, 1, 1))
    assert said(all_turns(merge)) == [Token(2, 1, 2)]
    merge.offer(1, token(1, 2, 1, 2))
    assert said(all_turns(merge)) == [END_OF_TIME, Token(3, 3, 2)]
    assert not merge.ended
    merge.offer(1, token(1, 3, 3, 2))
    assert said(all_turns(merge)) == [Token(4, 3, 2)]
    merge.offer(1, token(1, 4, 3, 2))
    assert said(all_turns(merge)) == []
    assert merge.ended


def test_a_tuple_behind_a_token_is_seen_in_the_next_round() -> None:
    """A round counts only when nothing came in it."""
    merge = merge_of(OUTSIDE, BACK)
    merge.offer(0, ends(0))
    all_turns(merge)
    merge.offer(1, token(0, 0, 0, 0))
    merge.offer(1, event(0, 1))
    merge.offer(1, token(1, 1, 0, 0))
    assert said(all_turns(merge)) == [Token(1, 0, 1), Token(2, 2, 2)]


def test_a_token_that_comes_again_says_nothing_new() -> None:
    """A link that broke brings it twice; an older one says less than is known."""
    merge = merge_of(OUTSIDE, BACK)
    merge.offer(0, ends(0))
    merge.offer(1, token(0, 1, 0, 0))
    left = [Token(0, 0, 0), Token(1, 0, 1), END_OF_TIME, Token(2, 2, 1)]
    assert said(all_turns(merge)) == left
    merge.offer(1, token(0, 1, 0, 0))
    merge.offer(1, token(0, 0, 0, 0))
    assert said(all_turns(merge)) == []


def test_who_is_fed_by_the_cycle_alone_waits_for_the_token_of_this_round() -> None:
    """And passes the end of time on when it comes, as any watermark."""
    merge = merge_of(AHEAD)
    merge.offer(0, event(0, 1))
    assert said(all_turns(merge)) == []
    merge.offer(0, token(1, 0, 0, 0))
    assert said(all_turns(merge)) == [Token(0, 0, 0)]
    merge.offer(0, Packet(1, 1, watermark=END_OF_TIME))
    merge.offer(0, token(1, 1, 1, 0))
    assert said(all_turns(merge)) == [END_OF_TIME, Token(1, 1, 0)]


def test_who_hears_that_all_is_over_ends_too() -> None:
    """Whoever ends first has found that nothing is under way."""
    merge = merge_of(AHEAD)
    merge.offer(0, token(0, 0, 0, 0))
    merge.offer(0, ends(0))
    all_turns(merge)
    assert merge.ended


def test_without_room_only_what_goes_around_is_taken() -> None:
    """Those who read may be waiting for it; what is outside can wait."""
    merge = merge_of(OUTSIDE, BACK)
    merge.offer(0, event(0, 1))
    merge.offer(1, event(0, 1))
    taken = merge.take(inside=True)
    assert taken is not None
    assert taken.channel == 1
    assert merge.take(inside=True) is None
    assert merge.take() is not None


def frame(sequence: int, t_end: int, section: Section) -> Frame:
    return Frame(1, sequence, 0, t_end, 0, 0, 0, 0, 0, 0, (section,), "segment", 0)


def test_rounds_go_on_after_a_crash() -> None:
    """No token leaves twice; and nobody knows what was taken behind the last one."""
    merge = merge_of(OUTSIDE, BACK)
    merge.offer(0, event(0, 1))
    merge.offer(0, ends(1))
    merge.offer(1, token(0, 1, 0, 0))
    assert said(all_turns(merge))[-1] == Token(2, 2, 1)
    section = merge.section()
    assert section is not None
    again = merge_of(OUTSIDE, BACK)
    again.recover([frame(0, 0, section)], 1)
    again.offer(0, ends(1))
    again.offer(1, token(0, 2, 2, 1))
    assert said(all_turns(again)) == [Token(3, 3, 1)]


class Ring:
    """Nodes in a ring, each with an input from outside, whose channels are as slow as they like."""

    def __init__(self, random: Random, size: int) -> None:
        self.random = random
        around = [random.random() < 0.4 for _ in range(size)]
        around[0] = True
        inside = [
            InputPlan("before", SCHEMA, "before", inside=True, around=each) for each in around
        ]
        self.nodes = [Rounds([OUTSIDE, each], sum(around)) for each in inside]
        # What is under way to each: tuples (None) and tokens.
        self.channels: list[list[int | None]] = [[] for _ in range(size)]
        self.left = random.randrange(40)

    @property
    def under_way(self) -> bool:
        return any(None in channel for channel in self.channels)

    def happens(self) -> None:
        number = self.random.randrange(len(self.nodes))
        node, following = self.nodes[number], (number + 1) % len(self.nodes)
        if self.channels[number] and self.random.random() < 0.6:
            item = self.channels[number].pop(0)
            if item is not None:
                node.heard(1, item)
                return
            node.moved()
            self.make(following)
            return
        step = node.step(outside_ended=True)
        if step is Step.SEND:
            self.channels[following].append(node.token.packed())
        elif step is Step.LET_TIME_END:
            self.make(following)

    def make(self, following: int) -> None:
        """A tuple may become several, as long as there is something left to make them of."""
        for _ in range(min(self.left, self.random.randrange(3))):
            self.left -= 1
            self.channels[following].append(None)


@pytest.mark.parametrize("seed", range(200))
def test_a_ring_ends_when_nothing_is_under_way_and_not_before(seed: int) -> None:
    """Whatever the speeds, and wherever loops close."""
    random = Random(seed)
    ring = Ring(random, random.randrange(1, 6))
    for _ in range(200_000):
        ring.happens()
        if any(each.over for each in ring.nodes):
            assert not ring.under_way
            assert not any(each.holds_end for each in ring.nodes)
            return
    pytest.fail("it never ends")

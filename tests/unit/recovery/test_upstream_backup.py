"""What upstream backup asks to be kept, when, and what follows (Hwang 3.3)."""

import pyarrow as pa
import pytest

from rewake.model.errors import ReplayMismatch, UsageError
from rewake.model.stream_event import NO_TIME, StreamEvent
from rewake.operators.aggregate.functions import Sum
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.classes import OperatorClass
from rewake.operators.windows.specs import time_window
from rewake.recovery.approach import Guarantee, Keeper, Survives, approach_named, by_port
from rewake.recovery.bookmark import Bookmark, Start, bookmark_of
from rewake.recovery.driven import Keep, Wake
from rewake.recovery.upstream_backup import MOST_CANDIDATES, MOST_STARTS, Starts

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
SPEC = AggregateSpec(["k"], time_window(10), [Sum("v", "sum")], time="t", slack=1 << 20)
APPROACH = approach_named("upstream-backup", every="20ms")


def event(start, *times, watermark=None):
    columns = {"k": [1] * len(times), "t": list(times), "v": [1] * len(times)}
    return StreamEvent(start, pa.RecordBatch.from_pydict(columns, schema=SCHEMA), watermark)


def backed_up(bookmark=None):
    operator = SPEC.operator(SCHEMA)
    if bookmark is None:
        return APPROACH.build(operator, by_port, ())
    return APPROACH.go_back(operator, by_port, bookmark)


def asked(commands):
    return [each.bookmark for each in commands if isinstance(each, Keep)]


def test_it_answers_for_itself():
    """A bookmark outlasts all processes; nothing of a turn is kept, so nothing waits."""
    assert APPROACH.keeper is Keeper.COORDINATOR
    assert APPROACH.survives is Survives.ALL
    assert APPROACH.settings() == {"every": "20ms"}
    assert not APPROACH.foretells
    for wrong in ("0s", "-1s", "soon"):
        with pytest.raises(UsageError):
            approach_named("upstream-backup", every=wrong)


def test_it_is_precise_where_an_empty_operator_becomes_the_same():
    """Hwang Table 3.2: windows that are counted shift for ever, and then repeats differ."""
    assert [APPROACH.guarantee(each) for each in OperatorClass] == [
        Guarantee.DIVERGENT, Guarantee.DIVERGENT, Guarantee.PRECISE, Guarantee.PRECISE,
    ]  # fmt: skip
    windows = OperatorClass.CONVERGENT_CAPABLE
    assert APPROACH.guarantee(windows, Guarantee.GAP) is Guarantee.GAP


def test_input_is_needed_from_the_turn_that_opened_the_oldest_window():
    """With the clocks before that turn, not those of now."""
    driven = backed_up()
    assert driven.began() == [Wake(20.0)]
    driven.turn(event(0, 1, 2, watermark=12))
    driven.turn(event(2, 13, 14))
    driven.turn(event(4, 15, watermark=14))
    (bookmark,) = asked(driven.woke(0.0))
    assert bookmark[:3] == (5, 14, 0)
    assert bookmark.begins == Start(2, 12, driven.operator.clock - 2)
    assert driven.acknowledged == -1, "it is not durable yet"
    assert driven.bookmark_kept(bookmark) == ()
    assert driven.acknowledged == 1


def test_without_open_windows_nothing_is_needed_again():
    """What was processed is in nothing any more."""
    driven = backed_up()
    driven.turn(event(0, 1, 2, watermark=40))
    driven.gave(1)
    driven.released(1)
    (bookmark,) = asked(driven.woke(0.0))
    assert (bookmark.position, bookmark.output) == (2, 1)
    assert bookmark.begins == Start(2, 40, driven.operator.clock)


def test_a_candidate_waits_until_nobody_needs_the_output_before_it():
    """Trap 1: by what consumers may ask for again, not by what they have taken; the newest wins."""
    driven = backed_up()
    for turn in range(4):
        driven.turn(event(turn, 10 * turn, watermark=10 * turn + 10))
        driven.gave(turn + 1)
        assert asked(driven.woke(0.0)) == []
    (bookmark,) = asked(driven.released(3))
    assert bookmark.output == 3
    assert asked(driven.released(4)) == [], "one is on its way"
    (later,) = asked(driven.bookmark_kept(bookmark))
    assert later.output == 4
    driven.check_invariants()


def test_nothing_new_is_no_candidate():
    """A quiet stream costs the coordinator nothing."""
    driven = backed_up()
    driven.turn(event(0, 1))
    (bookmark,) = asked(driven.woke(0.0))
    assert asked(driven.bookmark_kept(bookmark)) == []
    assert driven.woke(0.0) == [Wake(20.0)]
    driven.turn(event(1, watermark=4))
    assert asked(driven.woke(0.0)), "time is news, too"


def test_who_goes_back_drops_what_was_sent_and_goes_on_behind_it():
    """Up to the bookmark, a watermark that stands alone at its position included."""
    driven = backed_up()
    turns = [event(0, 1, 11), event(2, watermark=9), event(2, watermark=10), event(2, 12)]
    gave = [driven.turn(each).outputs for each in turns[:2]]
    assert not any(gave)
    (bookmark,) = asked(driven.woke(0.0))
    again = backed_up(bookmark)
    assert again.position == 0
    for each in turns[:2]:
        assert again.recovering
        assert asked(again.woke(0.0)) == []
        assert not again.turn(each).outputs
    assert not again.recovering
    assert again.turn(turns[2]).outputs == driven.turn(turns[2]).outputs != ()


def test_input_that_is_cut_anew_is_refused():
    """Output would be at other positions than those that were sent."""
    driven = backed_up()
    driven.turn(event(0, 1, 2, 3))
    (bookmark,) = asked(driven.woke(0.0))
    for other in (event(0, 1, 2, 3, 4), event(0, 1, 2, 3, watermark=9)):
        with pytest.raises(ReplayMismatch, match="cut differently"):
            backed_up(bookmark).turn(other)


def test_a_late_tuple_counts_once():
    """Whose window was open before the start is late when it comes again; nobody is told."""
    bookmark = Bookmark(2, 40, 3, 7, 1, 30, 30 - (1 << 20))
    driven = backed_up(bookmark)
    driven.turn(event(1, 1, watermark=40))
    assert not driven.recovering
    assert driven.operator.late_tuples == 7


def test_of_many_starts_an_earlier_one_stands_for_those_that_are_left_out():
    """A later one would lose what opened between the two."""
    starts = Starts()
    for position in range(0, 10 * MOST_STARTS, 2):
        starts.note(Start(position, NO_TIME, NO_TIME))
        assert len(starts) <= MOST_STARTS
    for position in range(1, 10 * MOST_STARTS, 997):
        found = starts.before(position).position
        assert found <= position
    assert starts.before(0).position <= starts.before(10 * MOST_STARTS).position


def test_of_many_candidates_some_are_left_out():
    """Consumers that are far behind cost no memory."""
    driven = backed_up()
    for turn in range(4 * MOST_CANDIDATES):
        driven.turn(event(turn, turn))
        driven.gave(turn + 1)
        driven.woke(0.0)
        assert driven.progress()["waiting_bookmarks"] <= MOST_CANDIDATES
    (bookmark,) = asked(driven.released(2 * MOST_CANDIDATES))
    assert bookmark.output <= 2 * MOST_CANDIDATES


@pytest.mark.parametrize(
    "written",
    [
        None,
        [],
        [1] * 6,
        [1, 2, 3, 0, 1, 2, True],
        [1, 2, 3, 0, 1, 2, 2**63],
        [-1, 2, 3, 0, 0, 2, 0],
        [1, 2, -3, 0, 0, 2, 0],
        [1, 2, 3, -1, 0, 2, 0],
        [1, 2, 3, 0, 2, 2, 0],
        [1, 2, 3, 0, 1, 3, 0],
        [1, 2, 2**62, 0, 1, 2, 0],
    ],
)
def test_numbers_that_no_node_leaves_are_no_bookmark(written):
    """Neither in the coordinator's file nor on the wire."""
    with pytest.raises(ValueError, match="bookmark"):
        bookmark_of(written)
    good = Bookmark(1, 2, 3, 0, 1, 2, 0)
    assert bookmark_of(list(good)) == good

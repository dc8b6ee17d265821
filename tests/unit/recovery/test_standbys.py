"""What two places of a node say to each other, and what is refused."""

from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewake.log.frame import Section, SectionKind, TurnRecord
from rewake.model.errors import BadPeer, InvalidWindow, UsageError
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Max, Sum
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.fragment import FragmentProgram
from rewake.operators.windows.specs import count_window
from rewake.recovery.driven import Forward, Say, Vouch
from rewake.recovery.standby.active import ActiveStandby
from rewake.recovery.standby.passive import PassiveStandby
from rewake.recovery.standby.words import Assembly, Purpose, answer, encoded, pieces, wanted_in

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def program(function=Sum) -> FragmentProgram:
    return FragmentProgram(stateful=AggregateSpec(["k"], count_window(2), [function("v", "found")]))


def event(position: int) -> StreamEvent:
    columns = {"k": [1, 1], "v": [position + 5, position + 6]}
    return StreamEvent(position, pa.RecordBatch.from_pydict(columns, SCHEMA))


# --- words ---------------------------------------------------------------------------------------


def test_a_message_of_many_pieces_is_put_together() -> None:
    """However large a record is, what is said at once is bounded."""
    section = Section(SectionKind.RESULTS, b"x" * (20 << 20))
    frame = encoded(TurnRecord(7, 0, 0, 1, 1, (section,)), 3, 9)
    said = list(pieces(Purpose.HOLD, 1, 4, 10, [frame]))
    assert len(said) == 3
    assembly = Assembly()
    assert [assembly.heard(piece) for piece in said[:-1]] == [None, None]
    message = assembly.heard(said[-1])
    assert message is not None
    assert message[:4] == (Purpose.HOLD, 1, 4, 10)
    assert [(each.sequence, each.position, each.t_end) for each in message.frames] == [(3, 9, 7)]


@given(st.binary(max_size=200))
def test_whatever_is_said_is_a_message_or_no_peers(words: bytes) -> None:
    """Hostile bytes raise one error, and nothing else."""
    for place in (PassiveStandby(), ActiveStandby()):
        standby = place.stand_by(lambda: program().operator(SCHEMA), program().emit)
        with suppress(BadPeer):
            standby.heard(words)
    try:
        wanted_in(words)
    except BadPeer:
        assert len(words) != len(answer(0))


def test_turns_before_a_state_are_refused() -> None:
    """Nothing could be computed from them."""
    standby = ActiveStandby().stand_by(lambda: program().operator(SCHEMA), program().emit)
    (words,) = pieces(Purpose.TAKE, 0, 0, 0, ())
    with pytest.raises(BadPeer, match="before it was told the state"):
        standby.heard(words)


# --- two places ----------------------------------------------------------------------------------


def said(commands) -> list[bytes]:
    return [each.words for each in commands if isinstance(each, Say)]


def test_output_waits_for_a_place_in_sync_and_for_no_other() -> None:
    """Alone it leaves at once; then when the other has answered; and again when that is gone."""
    node = PassiveStandby().build(program().operator(SCHEMA), program().emit, ())
    standby = PassiveStandby().stand_by(lambda: program().operator(SCHEMA), program().emit)

    def turn(number: int):
        record = node.turn(event(2 * number)).record
        return node.keep(number, number, record)

    assert Forward(1) in turn(0)
    commands = list(node.joined(1))
    vouched = False
    words = list(standby.opened())
    while words:
        commands = node.heard(1, words.pop(0))
        vouched = vouched or Vouch(1) in commands
        for piece in said(commands):
            words += standby.heard(piece)
    assert vouched
    commands = turn(1)
    assert not any(isinstance(each, Forward) for each in commands)
    (told,) = said(commands)
    (answered,) = standby.heard(told)
    assert Forward(2) in node.heard(1, answered)
    assert not any(isinstance(each, Forward) for each in turn(2))
    assert Forward(3) in node.left(1)
    assert Forward(4) in turn(3)


def test_a_standby_that_computes_something_else_ends_the_query_in_words() -> None:
    """It is no function of its input: after a takeover the output would contradict itself."""
    node = ActiveStandby().build(program().operator(SCHEMA), program().emit, ())
    other = program(Max)
    standby = ActiveStandby().stand_by(lambda: other.operator(SCHEMA), other.emit)
    node.joined(1)
    words = list(standby.opened())
    while words:
        for piece in said(node.heard(1, words.pop(0))):
            words += standby.heard(piece)
    (told,) = said(node.keep(0, 0, node.turn(event(0)).record))
    with pytest.raises(UsageError, match=r"computed something else .* no function of its input"):
        standby.heard(told)


# --- bad settings --------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [PassiveStandby, ActiveStandby])
def test_output_leaves_in_one_of_two_ways(made) -> None:
    """Anything else is refused where it is said."""
    with pytest.raises(UsageError, match='neither "held" nor "at_once"'):
        made(output="later")


def test_a_passive_standbys_periods_are_checked() -> None:
    """A duration, and a number of checkpoints."""
    with pytest.raises(InvalidWindow, match="is not a duration"):
        PassiveStandby(every="often")
    for number in (0, -1, 1.5, True):
        with pytest.raises(UsageError, match="a number of checkpoints, from 1 on"):
            PassiveStandby(full_every=number)

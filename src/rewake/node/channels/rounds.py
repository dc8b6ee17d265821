"""How the nodes of a cycle find out that nothing goes around any more (`docs/design/loops.md`).

A stream that comes back never ends by itself: everyone on the cycle waits for somebody else.  So,
once all that comes from outside has ended, they send *tokens* behind their tuples, in rounds.  A
node sends token r behind its output when it has got token r of everyone on the cycle who feeds it,
or token r - 1 where the channel closes a loop (else nobody could begin).  A token says

- `moved`: the latest round known in which a node took a tuple or a watermark from a channel;
- `held`: the latest round known in which a node held the end of time back.

What a node did in a round is known to all `heads` rounds later, for a way through the cycle closes
at most so many loops.  So, in round r, `moved < r - heads` says that in the round r - heads nobody
took anything: then every channel was empty between two tokens, and nothing will ever be in one
again.  Who holds the end of time back lets it go then; windows close by it, and what they give goes
around like anything else.  When nobody holds it and nothing moves again, the stream has ended.

What always holds: tokens of a node rise, across crashes too, for the last one is in the log with
the frame that it left with; a token that comes twice or late says nothing new.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from rewake.graph.plan.plan import InputPlan
from rewake.model.stream_event import IDLE, TIME_LIMIT

__all__ = ["NO_TOKEN", "Rounds", "Step", "Token", "is_token"]

# A token travels in place of a watermark, above every time: the round, and how many rounds ago
# (at most) something moved or was held.
_AGE_BITS: Final = 14
_OLDEST: Final = (1 << _AGE_BITS) - 1
_FIELDS: Final = 3


def is_token(watermark: int | None) -> bool:
    """Whether what stands in place of a watermark is a token."""
    return watermark is not None and TIME_LIMIT < watermark < IDLE


class Token(NamedTuple):
    """What a node says of the rounds so far; -1: of none."""

    round: int = -1
    moved: int = -1
    held: int = -1

    def packed(self) -> int:
        """As a number in place of a watermark."""
        ages = [min(self.round - each, _OLDEST) for each in (self.moved, self.held)]
        return TIME_LIMIT + 1 + (((self.round << _AGE_BITS) + ages[0]) << _AGE_BITS) + ages[1]

    @classmethod
    def unpacked(cls, number: int) -> Token:
        """What `packed` has given; what is longer ago than it can say is that long ago."""
        rest, held = divmod(number - TIME_LIMIT - 1, _OLDEST + 1)
        reached, moved = divmod(rest, _OLDEST + 1)
        return cls(reached, reached - moved, reached - held)


NO_TOKEN: Final = Token()


class Step(Enum):
    """What is to be done now."""

    LET_TIME_END = auto()
    SEND = auto()


class Rounds:
    """What one node of a cycle knows of the rounds; `heads` nodes read a channel that closes one.

    The merge tells what it takes, in order, and does what `step` says before it takes more.
    """

    def __init__(self, inputs: Sequence[InputPlan], heads: int) -> None:
        assert heads < _OLDEST, f"{heads} nodes close loops: more than a token can count"
        self._inside = [each.inside for each in inputs]
        # How far behind its own round a node may be for us to go on.
        self._lag = [int(each.around) for each in inputs]
        self._heads = heads
        self._heard = [NO_TOKEN] * len(inputs)
        # The last one that was sent.
        self.token = NO_TOKEN
        self.holds_end = any(each.around for each in inputs)
        # Nobody knows what was taken in an earlier life.
        self._moved = True
        self.over = False

    def moved(self) -> None:
        """A tuple or a watermark was taken."""
        self._moved = True

    def heard(self, channel: int, number: int) -> None:
        """A token has been taken from a channel."""
        token = Token.unpacked(number)
        if token.round > self._heard[channel].round:
            self._heard[channel] = token

    def ended(self, channel: int) -> None:
        """Who feeds the channel knows that all is over, and then it is."""
        if self._inside[channel]:
            self.over = True

    def step(self, outside_ended: bool) -> Step | None:
        """What is to be done, now that everything before it was taken; None: go on taking."""
        if self.over or not outside_ended:
            return None
        number = self.token.round + 1
        inside = [n for n, inside in enumerate(self._inside) if inside]
        if any(self._heard[n].round < number - self._lag[n] for n in inside):
            return None
        known = [self.token, *(self._heard[n] for n in inside)]
        moved = number if self._moved else max(each.moved for each in known)
        held = number if self.holds_end else max(each.held for each in known)
        quiet = number - self._heads
        if moved < quiet and self.holds_end:
            self.holds_end, self._moved = False, True
            return Step.LET_TIME_END
        if max(moved, held) < quiet:
            self.over = True
            return None
        self.token, self._moved = Token(number, moved, held), False
        return Step.SEND

    # --- in the log --------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """How many numbers `kept` has."""
        return 1 + _FIELDS * (1 + len(self._heard))

    def kept(self) -> list[int]:
        """All that must outlive a crash, as numbers."""
        return [int(self.holds_end), *self.token, *(at for each in self._heard for at in each)]

    def go_on(self, kept: Sequence[int]) -> None:
        """From what `kept` gave."""
        numbers = [int(each) for each in kept]
        self.holds_end = self.holds_end and bool(numbers[0])
        tokens = [Token(*numbers[at : at + _FIELDS]) for at in range(1, len(numbers), _FIELDS)]
        self.token, *self._heard = tokens

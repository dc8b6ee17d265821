"""A protocol from outside the package: rounds of markers, aligned where streams meet.

Who begins says a number behind its output every few milliseconds.  Where several inputs meet, an
input that is further than another is held until that has come as far; when all have, the number is
passed on.  Markers may get lost with a link, so a later one stands for those before it.
"""

from dataclasses import dataclass
from struct import Struct
from typing import ClassVar

from rewake.recovery.approach import Approach, Keeper, Kept, register
from rewake.recovery.driven import GoOn, Hold, Marker, Wake
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.policies.policy import OpenOnly

_NUMBER = Struct("<Q")
_ENDED = 1 << 62


@register
@dataclass(frozen=True)
class Aligned(Approach):
    """Continuous eventual checkpointing with rounds; of `inputs` 0 a node begins them."""

    name: ClassVar[str] = "aligned"
    keeper: ClassVar[Keeper] = Keeper.LOG
    retains: ClassVar[Kept] = Kept.IN_LOG
    inputs: int = 0
    every_ms: float = 5.0

    def build(self, operator, emit, frames):
        """As ever, with rounds beside it."""
        aligning = Aligning.recover(operator, OpenOnly(), frames, emit)
        aligning.heard_of, aligning.every_ms = [0] * self.inputs, self.every_ms
        return aligning


class Aligning(ContinuousEventualCheckpointing):
    """Where a node takes part in the rounds: what each input has said last."""

    heard_of: list[int]
    every_ms: float
    # The last round that is complete here, or was begun here.
    round = 0

    def began(self):
        return [] if self.heard_of else [Wake(self.every_ms)]

    def woke(self, now_ms):
        # Numbers of a later life are higher than all before.
        self.round = max(self.round + 1, int(now_ms))
        return [Marker(_NUMBER.pack(self.round)), Wake(self.every_ms)]

    def marked(self, channel, words):
        (self.heard_of[channel],) = _NUMBER.unpack(words)
        return self._align()

    def ended(self, channel):
        if not self.heard_of:
            return []
        self.heard_of[channel] = _ENDED
        return self._align()

    def _align(self):
        behind = min(self.heard_of)
        commands = [
            Hold(channel) if said not in (behind, _ENDED) else GoOn(channel)
            for channel, said in enumerate(self.heard_of)
        ]
        if self.round < behind < _ENDED and set(self.heard_of) <= {behind, _ENDED}:
            self.round = behind
            commands.append(Marker(_NUMBER.pack(behind)))
        return commands

    def progress(self):
        return super().progress() | {"round": self.round}

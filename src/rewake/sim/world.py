"""Virtual time: what happens next, to whom, and the story of it.

What always holds: actions happen in the order of their time, and of their scheduling when the times
are equal; an action of a process that is dead does not happen, one of a process that is paused
happens when it is resumed.  The hash of the story is a function of the seed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import sha256
from heapq import heappop, heappush
from random import Random

from rewake.model.errors import RewakeError

Action = Callable[[], None]

STORY_LINES = 200


class Stuck(RewakeError):
    """A simulated run did not come to its end; the story says what it was at."""


class Process:
    """Something that lives, can be paused, and dies; its memory goes with it."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.paused = False
        self._held: deque[Action] = deque()
        self._unheard: deque[Action] = deque()

    def after(self, delay_ms: float, action: Action) -> None:
        """Do something later, if this process is still alive then."""
        self.world.schedule(delay_ms, lambda: self.run(action))

    def run(self, action: Action) -> None:
        """Do something now, or when resumed, or never."""
        if not self.alive:
            return
        if self.paused:
            self._held.append(action)
            return
        action()

    def hear(self, action: Action) -> None:
        """Take notice of something from outside, behind all that is still unheard."""
        if self.alive and (self.paused or self._unheard):
            self._unheard.append(action)
        else:
            self.run(action)

    def say(self, what: str) -> None:
        """Add a line to the story."""
        self.world.say(self.name, what)

    def pause(self) -> None:
        """Stop doing anything, as after SIGSTOP; everything waits."""
        if self.alive and not self.paused:
            self.say("is paused")
            self.paused = True

    def resume(self) -> None:
        """Go on; what waited happens in its order.

        What has come from outside is heard a little later: whatever else a process was at, writing
        above all, goes on at once.
        """
        if not self.alive or not self.paused:
            return
        self.say("goes on")
        self.paused = False
        while self._held and self.alive and not self.paused:
            self._held.popleft()()
        self.after(self.world.between(0, 40), self._listen)

    def _listen(self) -> None:
        while self._unheard and self.alive and not self.paused:
            self._unheard.popleft()()

    def die(self, why: str) -> None:
        """End: memory is gone, and everyone who is connected will notice, sooner or later."""
        if not self.alive:
            return
        self.say(f"dies: {why}")
        self.alive = False
        self._held.clear()
        self._unheard.clear()
        self.died()

    def died(self) -> None:
        """What the surroundings do when this process has died."""


class World:
    """The clock, the actions to come, and the story."""

    def __init__(self, seed: int) -> None:
        self.now_ms = 0.0
        self.random = Random(f"rewake-{seed}")
        self.failure: Exception | None = None
        self.story: deque[str] = deque(maxlen=STORY_LINES)
        self.listener: Callable[[str], None] | None = None
        self.lines = 0
        self.actions = 0
        self._hash = sha256()
        self._sequence = 0
        self._agenda: list[tuple[float, int, Action]] = []

    def schedule(self, delay_ms: float, action: Action) -> None:
        """Have something happen later."""
        assert delay_ms >= 0, "nothing happens in the past"
        self._sequence += 1
        heappush(self._agenda, (self.now_ms + delay_ms, self._sequence, action))

    def between(self, low: float, high: float) -> float:
        """A random number of milliseconds."""
        return low + (high - low) * self.random.random()

    def chance(self, probability: float) -> bool:
        """Whether something happens that happens with this probability."""
        return self.random.random() < probability

    def say(self, who: str, what: str) -> None:
        """One line of the story, which is what the hash is made of."""
        line = f"{self.now_ms:10.3f} {who:<16} {what}"
        self._hash.update(line.encode())
        self.lines += 1
        self.story.append(line)
        if self.listener is not None:
            self.listener(line)

    @property
    def trace_hash(self) -> str:
        """What distinguishes this run from every other."""
        return self._hash.hexdigest()

    def run(self, done: Callable[[], bool], *, until_ms: float) -> None:
        """Let things happen until it is `done`; Stuck when that takes longer than it may."""
        while not done():
            if not self._agenda:
                raise Stuck(
                    f"nothing is left to happen at {self.now_ms:.1f} ms, but the run is not over"
                )
            at, _, action = heappop(self._agenda)
            if at > until_ms:
                raise Stuck(f"the run is not over at {until_ms:.1f} ms, long after the last fault")
            self.now_ms = at
            self.actions += 1
            action()

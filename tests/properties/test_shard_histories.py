"""Shards and Spark's checkpoint: what is continued is one history, whatever was lost and restored.

Spark plans batches, forgets plans that it had not synced, and goes on where its checkpoint says;
shards decide by their records.  Between that the folder of the state, or one shard of it, becomes
an older copy of itself, or is lost.  The oracle: when Spark commits a batch, every shard holds
exactly the batches that Spark has committed, with the rows that it planned last.

Where shards come from copies of any time, of plans that are no more, too, they are compared, as a
host does: all must hold the same when Spark commits.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from aggregate_cases import examples
from hypothesis import example, given
from hypothesis import strategies as st

from rewake.model.errors import UsageError
from rewake.node.micro_batches.next_batch import BatchIdentity
from rewake.node.micro_batches.shard_batches import BatchRecord, Decision, ShardBatches
from rewake.node.micro_batches.shard_chain import strangers
from rewake.operators.row_digest import RowDigest

QUERY = bytes(16)
SHARDS = 3


@dataclass
class At:
    """The folder: each shard's records."""

    logs: list[list[BatchRecord]] = field(default_factory=lambda: [[] for _ in range(SHARDS)])


class World:
    """Spark, the folder, and copies of it."""

    def __init__(self, any_copies: bool = False) -> None:
        self.any_copies = any_copies
        # The shards that have been compared since they were opened, by run.
        self.compared: dict[int, int] = {}
        self.at = At()
        # The plan of each committed batch: so many rows.
        self.committed: list[int] = []
        self.plan = 1
        self.run = self.plans = 1
        self.copies: list[At] = [At()]
        self.commits = 0

    def offer(self, shard: int) -> bool:
        """Give the planned batch to a shard, as a task does; whether it was taken."""
        batch, log = len(self.committed), self.at.logs[shard]
        rows = RowDigest(self.plan, self.plan, 0)
        request = BatchRecord(BatchIdentity(QUERY, batch), bytes([self.run % 256] * 16), rows)
        batches = ShardBatches("at", log[-1] if log else None)
        try:
            decision = batches.decide(request)
        except UsageError:
            return False
        if self.compared.get(shard) != self.run and not self.fits(shard, batch):
            return False
        self.compared[shard] = self.run
        if decision is Decision.REPLACE:
            log.pop()
        if decision is not Decision.REPEAT:
            log.append(batches.linked(request))
        return True

    def fits(self, shard: int, batch: int) -> bool:
        """Whether a shard has the past of the next one that can be compared with it."""
        ring = [self.at.logs[(shard + step) % SHARDS] for step in range(SHARDS)]
        pasts = [log[-1].past_of(batch) if log else None for log in ring]
        others = [each for each in pasts[1:] if each is not None]
        return pasts[0] is None or not others or not strangers({0: pasts[0], 1: others[0]})

    def run_batch(self, tasks: int) -> None:
        """Some tasks end, in any order; when all have, Spark commits and plans the next batch."""
        taken = [self.offer(shard) for shard in range(tasks)]
        if not all(taken) or tasks < SHARDS:
            self.run += 1
            return
        self.committed.append(self.plan)
        self.check()
        self.plan_anew()

    def copy(self) -> None:
        """Copy the folder, unless it ends with a plan that is no more: see the limits."""
        ends = [log[-1] for log in self.at.logs if log]
        planned = len(self.committed), self.plan
        known = [(each.batch, each.rows.rows) for each in ends if each.batch >= planned[0]]
        if self.any_copies or all(each == planned for each in known):
            self.copies.append(copy.deepcopy(self.at))

    def plan_anew(self) -> None:
        """The next batch has other rows than any before."""
        self.plans += 1
        self.plan = self.plans

    def lose_plans(self, batches: int) -> None:
        """The machine loses power: Spark has neither synced its last plans nor their commits."""
        self.run += 1
        self.committed = self.committed[: max(len(self.committed) - batches, 0)]
        # A copy is consistent with a plan that is no more, and would be continued: see the limits.
        if not self.any_copies:
            self.copies = [each for each in self.copies if not self._knows(each)]
        self.plan_anew()

    def _knows(self, at: At) -> bool:
        return any(log and log[-1].batch >= len(self.committed) for log in at.logs)

    def check(self) -> None:
        """One history."""
        self.commits += 1
        wanted = list(enumerate(self.committed))
        if self.any_copies:  # all of them may have come from one copy, one by one: see the limits
            wanted = [(each.batch, each.rows.rows) for each in self.at.logs[0]]
        for log in self.at.logs:
            assert [(each.batch, each.rows.rows) for each in log] == wanted


_STEPS = st.one_of(
    st.tuples(st.just("run"), st.integers(0, SHARDS)),
    st.tuples(st.just("run"), st.just(SHARDS)),
    st.tuples(st.just("run"), st.just(SHARDS)),
    st.tuples(st.just("power"), st.integers(0, 1)),
    st.tuples(st.just("copy"), st.just(0)),
    st.tuples(st.just("restore"), st.integers(0, 3)),
    st.tuples(st.just("restore shard"), st.integers(0, 11)),
)


_RUN = ("run", SHARDS)
_COPIED_AFTER_THE_LOSS = [_RUN, ("power", 1), ("copy", 0), _RUN, ("restore", 1), _RUN]


@examples(1000)
@example(_COPIED_AFTER_THE_LOSS)
@given(st.lists(_STEPS, max_size=40))
def test_what_is_continued_is_one_history(steps: list[tuple[str, int]]) -> None:
    """Whatever is refused is refused; whatever is committed is whole."""
    follow(World(), steps)


_SHARD_FROM_BEFORE = [_RUN, ("copy", 0), ("power", 1), _RUN, ("restore shard", 1), _RUN]


@examples(1000)
@example(_SHARD_FROM_BEFORE)
@given(st.lists(_STEPS, max_size=40))
def test_shards_that_are_continued_together_are_of_one_history(
    steps: list[tuple[str, int]],
) -> None:
    """Also when one was put back from before a batch was planned anew."""
    follow(World(any_copies=True), steps)


def follow(world: World, steps: list[tuple[str, int]]) -> None:
    """What happens, step by step; the world checks itself at every commit."""
    for step, number in steps:
        if step == "run":
            world.run_batch(number)
        elif step == "power":
            world.lose_plans(number)
        elif step == "copy":
            world.copy()
        elif world.copies:
            found = copy.deepcopy(world.copies[number % len(world.copies)])
            if step == "restore":
                world.at, world.compared = found, {}
            else:
                world.compared.pop(number % SHARDS, None)
                world.at.logs[number % SHARDS] = found.logs[number % SHARDS]


def test_undisturbed_batches_are_all_committed() -> None:
    """Also after crashes and lost plans, nothing is refused that continues."""
    world = World()
    for round_ in range(4):
        for tasks in (SHARDS, round_ % SHARDS, SHARDS):
            world.run_batch(tasks)
        world.lose_plans(1)
        world.run_batch(SHARDS)
    assert len(world.committed) == 8

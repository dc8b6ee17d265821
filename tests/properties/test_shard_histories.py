"""Shards and Spark's checkpoint: what is continued is one history, whatever was lost and restored.

Spark plans batches, forgets plans that it had not synced, and goes on where its checkpoint says;
shards decide by their records.  Between that the folder of the state, or one shard of it, becomes
an older copy of itself, or is lost.  The oracle: when Spark commits a batch, every shard holds
exactly the batches that Spark has committed, with the rows that it planned last.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from aggregate_cases import examples
from hypothesis import example, given
from hypothesis import strategies as st

from rewake.model.errors import UsageError
from rewake.node.shard_batches import (
    BatchIdentity,
    BatchRecord,
    Decision,
    ShardBatches,
)
from rewake.operators.row_digest import RowDigest

QUERY = bytes(16)
SHARDS = 3


@dataclass
class At:
    """The folder: each shard's records."""

    logs: list[list[BatchRecord]] = field(default_factory=lambda: [[] for _ in range(SHARDS)])


class World:
    """Spark, the folder, and copies of it."""

    def __init__(self) -> None:
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
        try:
            decision = ShardBatches("at", log[-1] if log else None).decide(request)
        except UsageError:
            return False
        if decision is Decision.REPLACE:
            log.pop()
        if decision is not Decision.REPEAT:
            log.append(request)
        return True

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
        if all(each == planned for each in known):
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
        self.copies = [each for each in self.copies if not self._knows(each)]
        self.plan_anew()

    def _knows(self, at: At) -> bool:
        return any(log and log[-1].batch >= len(self.committed) for log in at.logs)

    def check(self) -> None:
        """One history."""
        self.commits += 1
        wanted = list(enumerate(self.committed))
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
    world = World()
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
                world.at = found
            else:
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

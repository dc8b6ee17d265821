"""Shards of one history, wherever they were stopped, are never told apart; mixed ones always."""

from __future__ import annotations

from aggregate_cases import examples
from hypothesis import given
from hypothesis import strategies as st

from rewake.node.micro_batches.next_batch import BatchIdentity
from rewake.node.micro_batches.shard_batches import BatchRecord, ShardBatches
from rewake.node.micro_batches.shard_chain import NO_CHAIN, Past, ShardEnd, fits, link, strangers
from rewake.operators.row_digest import RowDigest

SHARDS = 3
# How many frames each shard gets of a commit, and which rows these are.
COMMIT = st.tuples(st.tuples(*[st.integers(0, 3)] * SHARDS), st.integers(0, 2))
Ends = tuple[ShardEnd, ...]


def after(ends: Ends, commit: tuple[tuple[int, ...], int]) -> Ends:
    """Where the shards end after a commit; the first one gets a frame that says so."""
    counts, rows = commit
    return tuple(
        ShardEnd(
            end.frames + count + (shard == 0), link(end.chain or b"", b"%d %d" % (rows, count))
        )
        if count + (shard == 0)
        else end
        for shard, (end, count) in enumerate(zip(ends, counts, strict=True))
    )


def history(commits: list[tuple[tuple[int, ...], int]]) -> list[Ends]:
    """Where the shards ended before and after each commit."""
    found: list[Ends] = [(ShardEnd(0, NO_CHAIN),) * SHARDS]
    for commit in commits:
        found.append(after(found[-1], commit))
    return found


@examples(300)
@given(st.lists(COMMIT, min_size=1, max_size=8), st.data())
def test_shards_stopped_anywhere_within_a_commit_fit(
    commits: list[tuple[tuple[int, ...], int]], data: st.DataObject
) -> None:
    """Each shard as far as it came; without a commit under way, where the last one left it."""
    *_, said, coming = history(commits)
    for shard in range(SHARDS):
        frames = data.draw(st.integers(said[shard].frames, coming[shard].frames))
        whole = frames == said[shard].frames
        found = ShardEnd(frames, (said if whole else coming)[shard].chain)
        assert fits(found, said[shard], coming[shard])
        assert fits(found, said[shard]) == whole
        assert fits(coming[shard], coming[shard])


@examples(500)
@given(
    st.lists(COMMIT, max_size=4),
    st.lists(COMMIT, max_size=4),
    st.lists(COMMIT, max_size=4),
    st.booleans(),
)
def test_a_shard_of_another_time_or_branch_fits_only_with_the_same_content(
    common: list[tuple[tuple[int, ...], int]],
    mine: list[tuple[tuple[int, ...], int]],
    others: list[tuple[tuple[int, ...], int]],
    under_way: bool,
) -> None:
    """An older copy is a branch without commits of its own."""
    here, there = history(common + mine), history(common + others)
    said, coming = (here[-2], here[-1]) if under_way and len(here) > 1 else (here[-1], None)
    for shard in range(SHARDS):
        found = there[-1][shard]
        same = {said[shard], coming[shard]} if coming else {said[shard]}
        assert fits(found, said[shard], coming[shard] if coming else None) == (found in same)


# --- shards that record every batch --------------------------------------------------------------


def recorded(plans: list[int], last: BatchRecord | None = None) -> BatchRecord | None:
    """The newest record of a shard that has taken batches with these rows."""
    for plan in plans:
        batch = 0 if last is None else last.batch + 1
        last = taken(last, batch, plan)
    return last


def taken(last: BatchRecord | None, batch: int, plan: int) -> BatchRecord:
    """The record of a batch, behind the last one or in its place."""
    identity = BatchIdentity(bytes(16), batch)
    request = BatchRecord(identity, bytes(16), RowDigest(plan, plan, 0))
    return BatchRecord.decode(ShardBatches("at", last).linked(request).encode())


PLANS = st.lists(st.integers(0, 2), max_size=6)


@examples(300)
@given(PLANS, st.lists(PLANS, min_size=SHARDS, max_size=SHARDS), st.booleans())
def test_shards_in_or_before_the_batch_under_way_have_one_past(
    plans: list[int], anew: list[list[int]], old: bool
) -> None:
    """Each has recorded the batch under way as often as Spark has planned it anew, or not yet."""
    batch = len(plans)
    before = recorded(plans)
    if old and before is not None:
        before = before._replace(past=None)  # written before there were chains
    shards = [before] * SHARDS
    for shard, tries in enumerate(anew):
        for plan in tries:
            shards[shard] = taken(shards[shard], batch, plan)
    pasts = {n: last.past_of(batch) for n, last in enumerate(shards) if last is not None}
    assert strangers({n: past for n, past in pasts.items() if past is not None}) == []


@examples(500)
@given(PLANS, PLANS, st.integers(0, 5), st.integers(0, SHARDS - 1), st.integers(0, 1))
def test_a_shard_with_other_rows_in_its_past_is_named(
    plans: list[int], others: list[int], at: int, odd: int, further: int
) -> None:
    """Whether or not it has taken the batch under way; one of another time does not come so far."""
    batch = len(plans)
    mixed = plans[:at] + others
    right, wrong = recorded(plans), recorded([*mixed, 0][: len(mixed) + further])
    if right is None or wrong is None:
        return
    past = wrong.past_of(batch)
    if len(mixed) + further not in (batch, batch + 1):
        assert past is None  # such a shard refuses the batch by itself
        return
    assert past is not None
    pasts: dict[int, Past] = dict.fromkeys(range(SHARDS), right.past_of(batch) or Past(-1))
    wanted = [] if [*mixed, 0][:batch] == plans else [odd]
    assert strangers(pasts | {odd: past}) == wanted

"""Shards of a stream: stopped anywhere in one commit they are one history, mixed they are not."""

from __future__ import annotations

from aggregate_cases import examples
from hypothesis import given
from hypothesis import strategies as st

from rewake.node.shard_chain import NO_CHAIN, ShardEnd, fits, link

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

"""A reader's picture of the log at one moment: which bytes of which segments it may read.

What is visible ends at a frontier that gives the exact byte where each stripe's visible frames end.
Everything before it must be a valid frame; nothing behind it is ever looked at, so frames in flight
and the bytes of fenced writers cannot be met.

A picture is taken while a writer may be going on.  What looks like damage may then be a change half
seen, so it is looked at again before it is believed.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from rewake.log.chain import Chain, LiveSegment, load_chains
from rewake.log.descriptor import Descriptor, read_descriptor
from rewake.log.floor import read_floor
from rewake.log.mark import Frontier, read_mark
from rewake.log.recover import recover
from rewake.log.store import Store
from rewake.model.errors import DamagedLog

__all__ = ["MIN_TIMESTAMP", "View", "Viewer"]

MIN_TIMESTAMP: Final = -(1 << 63)
ATTEMPTS: Final = 5


class View(NamedTuple):
    """What can be read: from sequence `floor` up to `frontier`."""

    floor: int
    first_position: int
    first_timestamp: int
    chains: tuple[Chain, ...]
    frontier: Frontier

    def visible(self, stripe: int) -> Sequence[LiveSegment]:
        """The segments of a stripe, each with the byte where its visible frames end."""
        if not self.frontier.ends:
            return ()
        last, offset = self.frontier.ends[stripe]
        segments: list[LiveSegment] = []
        for live in self.chains[stripe]:
            if live.id == last:
                return [*segments, LiveSegment(live.header, offset)]
            segments.append(live)
        raise FileNotFoundError(last.name)


class Viewer:
    """The current picture of one log, for the cursors that share it."""

    def __init__(self, stores: Sequence[Store]) -> None:
        self.stores = stores
        self.descriptor = read_descriptor(stores)
        self.view = load_view(stores, self.descriptor)

    @property
    def log_id(self) -> int:
        """The identity that every frame must carry."""
        return self.descriptor.log_id

    @property
    def end_sequence(self) -> int:
        """One more than the sequence of the last visible frame."""
        return self.view.frontier.sequence

    def refresh(self) -> None:
        """See what has become complete since."""
        self.view = refreshed(self.stores, self.descriptor, self.view)

    def reload(self) -> None:
        """See everything anew, also what has been trimmed meanwhile."""
        self.view = load_view(self.stores, self.descriptor)


def load_view(stores: Sequence[Store], descriptor: Descriptor) -> View:
    """The log as it is now: all that is complete, also when the mark lags after power loss."""
    for _ in range(ATTEMPTS - 1):
        try:
            return _load(stores, descriptor)
        except (DamagedLog, FileNotFoundError):
            continue
    return _load(stores, descriptor)


def refreshed(stores: Sequence[Store], descriptor: Descriptor, view: View) -> View:
    """The log as it is now, given how it was: one look at the mark when nothing else changed."""
    mark = read_mark(stores[0], log_id=descriptor.log_id, stripes=descriptor.stripes)
    if mark is None or mark.completed.sequence <= view.frontier.sequence:
        return view
    if all(
        any(live.id == end.segment for live in reversed(chain))
        for chain, end in zip(view.chains, mark.completed.ends, strict=True)
    ):
        return view._replace(frontier=mark.completed)
    renewed = load_view(stores, descriptor)
    return renewed if renewed.frontier.sequence >= view.frontier.sequence else view


def _load(stores: Sequence[Store], descriptor: Descriptor) -> View:
    # The mark is read first: the segments it names were published before it was written.
    log_id = descriptor.log_id
    mark = read_mark(stores[0], log_id=log_id, stripes=descriptor.stripes)
    floor = read_floor(stores[0], log_id=log_id)
    chains, seals = load_chains(stores, log_id=log_id, floor=floor)
    if mark is None and not all(chains):
        return View(0, 0, MIN_TIMESTAMP, chains, Frontier(0, 0, MIN_TIMESTAMP, ()))
    recovered = recover(stores, chains, seals, mark, log_id=log_id, floor=floor)
    complete = max(recovered.proven, mark.completed.sequence if mark else 0)
    frontier = recovered.frontier_at(complete)
    first = max((chain[0].header for chain in chains), key=lambda header: header.id.first_sequence)
    return View(floor, first.position, first.timestamp, chains, frontier)

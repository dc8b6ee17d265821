"""A reader's picture of the log at one moment: which bytes of which segments it may read.

What is visible ends at a frontier that gives the exact byte where each stripe's visible frames end.
Everything before it must be a valid frame; nothing behind it is ever looked at, so frames in flight
and the bytes of fenced writers cannot be met.

A picture is taken while a writer may be going on.  What looks like damage may then be a change half
seen, so it is looked at again before it is believed.

After power loss the mark may lag, and whole frames behind it may have been acknowledged.  A reader
that opens the log then does what a writer does before it acknowledges: it makes them durable, and
looks whether their writer still owns the log.  If it does, no successor has read the log yet, so it
will find them too.  While a successor is at opening, a reader shows what is proven without that.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from rewake.log.files.claims import owns
from rewake.log.files.descriptor import Descriptor, read_descriptor
from rewake.log.files.mark import MIN_TIMESTAMP, Frontier, read_mark
from rewake.log.reading.chain import Chain, LiveSegment
from rewake.log.reading.survey import survey
from rewake.log.recover import recover
from rewake.log.store import Store
from rewake.model.errors import DamagedLog

__all__ = ["View", "Viewer"]

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
    """The current picture of one log, for the cursors that share it.

    Frames behind the mark are adopted when it is made, and never later: who follows a writer goes
    by what that one says is complete.
    """

    def __init__(self, stores: Sequence[Store], *, adopt: bool = True) -> None:
        self.stores = stores
        self.descriptor = read_descriptor(stores)
        self.view = load_view(stores, self.descriptor, adopt=adopt)

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
        renewed = load_view(self.stores, self.descriptor)
        if renewed.frontier.sequence < self.end_sequence:  # what was adopted stays
            renewed = renewed._replace(frontier=self.view.frontier)
        self.view = renewed


def load_view(stores: Sequence[Store], descriptor: Descriptor, *, adopt: bool = False) -> View:
    """The log as it is now: all that is complete, also when the mark lags after power loss."""
    for _ in range(ATTEMPTS - 1):
        try:
            return _load(stores, descriptor, adopt=adopt)
        except (DamagedLog, FileNotFoundError):
            continue
    return _load(stores, descriptor, adopt=adopt)


def refreshed(stores: Sequence[Store], descriptor: Descriptor, view: View) -> View:
    """The log as it is now, given how it was: one look at the mark when nothing else changed."""
    mark = read_mark(stores[0], log_id=descriptor.log_id, stripes=descriptor.stripes)
    if mark.completed.sequence <= view.frontier.sequence:
        return view
    if all(
        any(live.id == end.segment for live in reversed(chain))
        for chain, end in zip(view.chains, mark.completed.ends, strict=True)
    ):
        return view._replace(frontier=mark.completed)
    renewed = load_view(stores, descriptor)
    return renewed if renewed.frontier.sequence >= view.frontier.sequence else view


def _load(stores: Sequence[Store], descriptor: Descriptor, *, adopt: bool) -> View:
    found = survey(stores, descriptor)
    if found.empty:
        return View(0, 0, MIN_TIMESTAMP, found.chains, Frontier(0, 0, MIN_TIMESTAMP, ()))
    recovered = recover(stores, found, log_id=descriptor.log_id)
    complete = max(recovered.proven, found.mark.completed.sequence if found.mark else 0)
    if adopt and recovered.end.sequence > complete:
        recovered = recover(stores, found, log_id=descriptor.log_id, settle=True)
        if owns(stores[0], max(chain[-1].id.epoch for chain in found.chains)):
            complete = max(complete, recovered.end.sequence)
    first = max(
        (chain[0].header for chain in found.chains), key=lambda header: header.id.first_sequence
    )
    frontier = recovered.frontier_at(complete)
    return View(found.floor, first.position, first.timestamp, found.chains, frontier)

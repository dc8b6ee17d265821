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

A log may go back.  A view is then replaced by one that ends earlier, or holds other frames; `backs`
tells the cursors of a viewer, of which those that have come too far raise `TakenBack`.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from rewake.log.files.claims import owns
from rewake.log.files.descriptor import Descriptor, read_descriptor
from rewake.log.files.mark import MIN_TIMESTAMP, Frontier, read_mark
from rewake.log.reading.chain import Chain, LiveSegment, Seals
from rewake.log.reading.survey import survey
from rewake.log.recover import recover
from rewake.log.store import Store
from rewake.model.errors import DamagedLog

__all__ = ["View", "Viewer"]

ATTEMPTS: Final = 5


class View(NamedTuple):
    """What can be read: from sequence `floor` up to `frontier`; `epoch` is of the newest writer."""

    floor: int
    first_position: int
    first_timestamp: int
    chains: tuple[Chain, ...]
    frontier: Frontier
    epoch: int
    seals: Seals

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

    def taken_back_by(self, later: "View") -> int | None:
        """The first sequence whose frame, in this view, is not part of the log any more.

        A frame is dead when a later epoch has sealed the log at it or below.  If that epoch's
        segments are trimmed, the log begins where this view ends, or behind: then the first that
        is left still names the one before it.
        """
        limit = later.seals.limit(self.epoch)
        previous = later.chains[0][0].header.previous if later.chains[0] else None
        if previous is not None and previous.epoch > self.epoch:
            limit = min(limit, previous.first_sequence)
        return limit if limit < self.frontier.sequence else None


class Viewer:
    """The current picture of one log, for the cursors that share it.

    Frames behind the mark are adopted when it is made, and never later: who follows a writer goes
    by what that one says is complete.
    """

    def __init__(self, stores: Sequence[Store], *, adopt: bool = True) -> None:
        self.stores = stores
        self.descriptor = read_descriptor(stores)
        self.view = load_view(stores, self.descriptor, adopt=adopt)
        self.backs: list[int] = []  # each sequence to which the log was seen to go back

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
        self._see(refreshed(self.stores, self.descriptor, self.view))

    def reload(self) -> None:
        """See everything anew, also what has been trimmed meanwhile."""
        renewed = load_view(self.stores, self.descriptor)
        lags = renewed.frontier.sequence < self.end_sequence
        if lags and self.view.taken_back_by(renewed) is None:  # what was adopted stays
            renewed = renewed._replace(frontier=self.view.frontier)
        self._see(renewed)

    def _see(self, view: View) -> None:
        if view.seals is not self.view.seals:
            back = self.view.taken_back_by(view)
            if back is not None:
                self.backs.append(back)
        self.view = view


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
    if mark.epoch <= view.epoch:
        if mark.epoch < view.epoch or mark.completed.sequence <= view.frontier.sequence:
            return view
        # The mark of a writer that was succeeded may be late, and of frames that were taken back.
        if _known(mark.completed, view.chains) and owns(stores[0], mark.epoch):
            return view._replace(frontier=mark.completed)
    renewed = load_view(stores, descriptor)
    lags = renewed.frontier.sequence < view.frontier.sequence
    return view if lags and view.taken_back_by(renewed) is None else renewed


def _known(frontier: Frontier, chains: Sequence[Chain]) -> bool:
    return all(
        any(live.id == end.segment for live in reversed(chain))
        for chain, end in zip(chains, frontier.ends, strict=True)
    )


def _load(stores: Sequence[Store], descriptor: Descriptor, *, adopt: bool) -> View:
    found = survey(stores, descriptor)
    if found.empty:
        nothing = Frontier(0, 0, MIN_TIMESTAMP, ())
        return View(0, 0, MIN_TIMESTAMP, found.chains, nothing, 0, found.seals)
    recovered = recover(stores, found, log_id=descriptor.log_id)
    complete = max(recovered.proven, found.completed)
    if adopt and recovered.end.sequence > complete:
        recovered = recover(stores, found, log_id=descriptor.log_id, settle=True)
        if owns(stores[0], max(chain[-1].id.epoch for chain in found.chains)):
            complete = max(complete, recovered.end.sequence)
    first = max(
        (chain[0].header for chain in found.chains), key=lambda header: header.id.first_sequence
    )
    frontier = recovered.frontier_at(complete)
    marked = found.mark.epoch if found.mark is not None else 0
    epoch = max(marked, *(end.segment.epoch for end in frontier.ends))
    first_at = (found.floor, first.position, first.timestamp)
    return View(*first_at, found.chains, frontier, epoch, found.seals)

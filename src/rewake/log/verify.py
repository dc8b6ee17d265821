"""Reading a whole log to tell what is there, what is torn, what is damaged and what can be saved.

Nothing here raises for damage, and nothing is changed.  A frame counts as live when it lies in a
segment's live bytes; bytes behind them (a torn tail, a fenced writer's leavings, what was taken
back) count as torn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rewake.log.files.descriptor import Descriptor, read_descriptor
from rewake.log.files.floor import read_floor
from rewake.log.files.layout import SegmentId
from rewake.log.files.mark import Mark, read_mark
from rewake.log.files.segment import SEGMENT_HEADER_SIZE, SegmentHeader
from rewake.log.reading.chain import Seals, SegmentFiles
from rewake.log.reading.scan import FoundFrame, Window, headers_in
from rewake.log.reading.survey import believed_mark, survey
from rewake.log.recover import recover
from rewake.log.store import Store
from rewake.model.errors import DamagedFrame, DamagedLog, RewakeError

__all__ = ["Damage", "LogReport", "SegmentReport", "verify"]


@dataclass(frozen=True, slots=True)
class Damage:
    """The first thing that is not as it was written."""

    segment: str
    offset: int
    sequence: int
    reason: str


@dataclass(slots=True)
class SegmentReport:
    """What one segment file holds."""

    stripe: int
    name: str
    epoch: int
    first_sequence: int
    size: int
    live: bool = False
    frames: int = 0
    live_bytes: int = 0
    torn_bytes: int = 0
    damage: Damage | None = None
    runs: list[tuple[int, int]] = field(default_factory=list)  # [first, end) of whole frames


@dataclass(slots=True)
class LogReport:
    """What a log holds."""

    descriptor: Descriptor | None = None
    first_sequence: int = 0
    end_sequence: int = 0  # without a gap from first_sequence up to here
    durable: int = 0  # what the mark and the frames themselves prove to have been durable
    segments: list[SegmentReport] = field(default_factory=list)
    damage: Damage | None = None
    readable_after: int = 0  # whole frames behind the first gap

    @property
    def intact(self) -> bool:
        """Whether everything that was durable is there."""
        return self.damage is None

    @property
    def frames(self) -> int:
        """Live frames, before and after any damage."""
        return sum(segment.frames for segment in self.segments if segment.live)

    @property
    def bytes(self) -> int:
        """Bytes of live frames."""
        return sum(segment.live_bytes for segment in self.segments if segment.live)

    @property
    def torn_bytes(self) -> int:
        """Bytes behind the end of the log, or of a segment."""
        return sum(segment.torn_bytes for segment in self.segments)


def verify(stores: Sequence[Store]) -> LogReport:
    """Read everything; raise only when the log cannot be reached at all."""
    report = LogReport()
    try:
        report.descriptor = read_descriptor(stores)
    except DamagedLog as error:
        report.damage = _damage(error)
        return report
    log_id = report.descriptor.log_id
    mark = _read_bounds(stores, log_id, report)
    headers = _read_headers(stores, log_id, report)
    seals = Seals(header for _, header in headers.values())
    ends = _live_ends(headers, seals)
    proven = min(mark.durable.sequence, seals.limit(mark.epoch)) if mark else 0
    for (stripe, segment), (store, header) in sorted(headers.items(), key=lambda item: item[0][1]):
        limit = seals.limit(segment.epoch)
        walk = _SegmentWalk(store, stripe, header, ends.get((stripe, segment)), limit, log_id)
        walk.run()
        report.segments.append(walk.report)
        proven = max(proven, walk.proven)
    report.durable = proven
    _conclude(report)
    if report.intact:
        _open_as_others_do(stores, report)
    return report


class _SegmentWalk:
    """Every whole frame of one segment, however damaged it is between them."""

    def __init__(
        self,
        store: Store,
        stripe: int,
        header: SegmentHeader,
        end: int | None,
        limit: int,
        log_id: int,
    ) -> None:
        name = header.id.name
        size = store.size(name)
        self.report = SegmentReport(stripe, name, header.id.epoch, header.id.first_sequence, size)
        self.report.live = header.id.first_sequence < limit or end is not None
        self.proven = 0
        self._closed = end is not None
        self._limit = limit
        self._stop = size if end is None else min(end, size)
        self._window = Window(store, header.id, log_id=log_id, stop=self._stop)
        if end is not None and size < end:
            reason = f"the file ends at byte {size}, but {end} bytes of it were durable"
            self.report.damage = Damage(name, size, -1, reason)

    def run(self) -> None:
        report = self.report
        offset = SEGMENT_HEADER_SIZE
        while offset < self._stop:
            try:
                found = self._window.check(offset)
            except DamagedFrame as error:
                self._note(offset, str(error))
                offset = self._resume(offset)
                continue
            if found.header.sequence >= self._limit:
                break
            self._count(found)
            offset = found.end
        report.torn_bytes = report.size - SEGMENT_HEADER_SIZE - report.live_bytes

    def _count(self, found: FoundFrame) -> None:
        header, report = found.header, self.report
        self.proven = max(self.proven, header.durable)
        report.frames += 1
        report.live_bytes += header.length
        if report.runs and report.runs[-1][1] == header.sequence:
            report.runs[-1] = (report.runs[-1][0], header.sequence + 1)
        else:
            report.runs.append((header.sequence, header.sequence + 1))

    def _note(self, offset: int, reason: str) -> None:
        if self.report.damage is None:
            last = self.report.runs[-1][1] if self.report.runs else self.report.first_sequence
            self.report.damage = Damage(self.report.name, offset, last, reason)

    def _resume(self, offset: int) -> int:
        """Where the next whole frame begins, or the end."""
        for candidate in headers_in(self._window, offset + 1):
            if candidate.header.sequence >= self._limit:
                continue  # dead: it proves nothing
            self.proven = max(self.proven, candidate.header.durable)
            try:
                self._window.check(candidate.offset)
            except DamagedFrame:
                continue
            return candidate.offset
        return self._stop


def _open_as_others_do(stores: Sequence[Store], report: LogReport) -> None:
    """What a writer and a reader would refuse is damage here too, though each frame be whole."""
    assert report.descriptor is not None
    try:
        found = survey(stores, report.descriptor)
        if not found.empty:
            recover(stores, found, log_id=report.descriptor.log_id)
    except DamagedLog as error:
        report.damage = _damage(error)


def _read_bounds(stores: Sequence[Store], log_id: int, report: LogReport) -> Mark | None:
    try:
        report.first_sequence = read_floor(stores[0], log_id=log_id)
        first = read_mark(stores[0], log_id=log_id, stripes=len(stores))
        return believed_mark(stores, first, report.first_sequence)
    except DamagedLog as error:
        report.damage = _damage(error)
        return None


def _read_headers(
    stores: Sequence[Store], log_id: int, report: LogReport
) -> dict[tuple[int, SegmentId], tuple[Store, SegmentHeader]]:
    headers: dict[tuple[int, SegmentId], tuple[Store, SegmentHeader]] = {}
    for stripe, store in enumerate(stores):
        files = SegmentFiles(store, stripe, log_id)
        headers |= {(stripe, each): (store, header) for each, header in files.headers.items()}
        for (first, epoch), error in sorted(files.damaged.items(), key=lambda item: item[0]):
            report.damage = report.damage or _damage(error)
            size = store.size(error.segment)
            lost = SegmentReport(stripe, error.segment, epoch, first, size)
            lost.damage, lost.torn_bytes = _damage(error), size
            report.segments.append(lost)
    return headers


def _live_ends(
    headers: dict[tuple[int, SegmentId], tuple[Store, SegmentHeader]], seals: Seals
) -> dict[tuple[int, SegmentId], int]:
    """Where each segment's live bytes end, as the newest of those that follow it says.

    What was taken back, or was a fenced writer's, says nothing about the log.
    """
    ends = {}
    for (stripe, _), (_, header) in sorted(headers.items(), key=lambda item: item[0][1].epoch):
        dead = header.id.first_sequence > seals.limit(header.id.epoch)
        if header.previous is not None and not dead:
            ends[stripe, header.previous] = header.previous_end
    return ends


def _conclude(report: LogReport) -> None:
    runs = sorted(run for segment in report.segments if segment.live for run in segment.runs)
    end = report.first_sequence
    behind = 0
    for first, stop in runs:
        if first <= end:
            end = max(end, stop)
        else:
            behind += stop - first
    report.end_sequence, report.readable_after = end, behind
    if end >= report.durable:
        return  # whatever could not be read was never durable: a torn tail
    noted = [s.damage for s in report.segments if s.live and s.damage is not None]
    at_end = [damage for damage in noted if damage.sequence == end] or noted
    missing = Damage(
        "", -1, end, f"frame {end} is missing, but all below {report.durable} were durable"
    )
    report.damage = report.damage or (at_end[0] if at_end else missing)


def _damage(error: RewakeError) -> Damage:
    if isinstance(error, DamagedLog):
        return Damage(error.segment, error.offset, error.sequence, str(error))
    return Damage("", -1, -1, str(error))

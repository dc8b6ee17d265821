"""What a log holds, gathered for showing: identity, bounds, damage, extent, frames.

Nothing is ever created, changed or locked, so a log may be inspected while it is being written.
What looks like damage may then be a change half seen, so it is looked at again before it is
believed.  Whole frames are shown on both sides of damage; nothing is shown of what is not whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from rewake.log.contents import Contents
from rewake.log.files.descriptor import VERSION, Descriptor
from rewake.log.files.layout import segment_id
from rewake.log.files.segment import SEGMENT_HEADER_SIZE
from rewake.log.frame import Frame, SectionKind
from rewake.log.log import Log
from rewake.log.reading.scan import Window, headers_in
from rewake.log.store import Store
from rewake.log.verify import LogReport, SegmentReport, verify
from rewake.model.errors import (
    DamagedData,
    DamagedFrame,
    DamagedLog,
    NotALog,
    StorageFault,
    UsageError,
)
from rewake.model.stream_event import TIME_LIMIT, told_by
from rewake.node.coordinator.state import STATE_FILE
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.aggregate.spec_json import spec_from_json
from rewake.recovery.eventual.engine import RESULTS_OUTPUT, result_batch
from rewake.recovery.eventual.reading import EventualCheckpoint, construct, unpack_parts
from rewake.stores.edge import local_stores

__all__ = [
    "FORMAT_VERSION",
    "Extent",
    "FrameFacts",
    "LogInspection",
    "Made",
    "SectionFacts",
    "Selection",
    "event_time",
    "extent_of",
    "inspect_log",
    "made_by",
    "opened_stores",
    "pointed",
]

FORMAT_VERSION = VERSION
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Selection:
    """Which frames to show: the last `last`, or from `first` up to and including `through`."""

    last: int = 20
    first: int | None = None
    through: int | None = None

    def __post_init__(self) -> None:
        if self.last < 0:
            raise UsageError(f"--last {self.last}: a number of frames cannot be negative")
        if self.through is not None and self.first is None:
            raise UsageError("--to needs --from: give the first frame too")

    def bounds(self, start: int, end: int) -> tuple[int, int]:
        """The sequences [first, end) to show of a log that holds [start, end)."""
        if self.first is None:
            return max(start, end - self.last), end
        stop = self.first + self.last if self.through is None else self.through + 1
        return max(start, self.first), min(end, stop)


@dataclass(frozen=True, slots=True)
class Made:
    """What the log's metadata says about its results: their schema and the operator, if any."""

    schema: pa.Schema | None = None
    spec: AggregateSpec | None = None


@dataclass(frozen=True, slots=True)
class SectionFacts:
    """One section of a frame; `rows` are its decoded tuples, when they can be decoded."""

    kind: str
    output: int
    bytes: int
    rows: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class FrameFacts:
    """One frame; OPENs and CHECKs are None when the sections are not CEC's."""

    sequence: int
    epoch: int
    position: int
    tuples: int
    t_end: int
    timestamp: int | str | None
    open_windows: int
    opens: int | None
    checks: int | None
    records: int
    bytes: int
    segment: str
    offset: int
    sections: list[SectionFacts] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Extent:
    """What recovery would read; `reason` says why it is not known."""

    frames: int = 0
    records: int = 0
    bytes: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LogInspection:
    """All that `rewake inspect log` shows."""

    paths: list[Path]
    report: LogReport
    made: Made
    extent: Extent
    frames: list[FrameFacts]

    @property
    def epoch(self) -> int:
        """The newest writer's epoch; -1 when none has opened the log."""
        return max((segment.epoch for segment in self.report.segments), default=-1)

    def path_of(self, segment: str) -> Path | None:
        """Where a damaged file is."""
        for known in self.report.segments:
            if known.name == segment:
                return self.paths[known.stripe] / segment
        return self.paths[0] / segment if segment else None


def opened_stores(paths: Sequence[Path], stack: ExitStack) -> Sequence[Store]:
    """The stores of a log's stripes; `NotALog` names the path and, where it can, a better one."""
    try:
        return local_stores(list(paths), stack=stack)
    except NotALog as error:
        raise pointed(paths, error) from None


def pointed(paths: Sequence[Path], error: NotALog) -> NotALog:
    """The same error, with where it is and, when logs are just below, where they are."""
    for path in paths:
        if not path.is_dir() or (path / "LOG").exists() or (path / "STRIPE").exists():
            continue
        if (path / STATE_FILE).exists():
            return _query_folder(path)
        below = [str(each.parent) for each in sorted(path.glob("*/LOG"))]
        if below:
            these = f"{below[0]} is one" if len(below) == 1 else f"these are: {', '.join(below)}"
            return NotALog(f"{path} is not a log, but {these}")
    where = ", ".join(str(path) for path in paths)
    return NotALog(str(error) if where in str(error) else f"{where}: {error}")


def _query_folder(path: Path) -> NotALog:
    logs = [str(each.parent) for each in sorted(path.glob("nodes/*/LOG"))]
    these = f"its logs are {', '.join(logs)}; give one of them" if logs else "it keeps no logs"
    return NotALog(f"{path} is the folder of a query, not a log; {these}")


def inspect_log(
    paths: Sequence[Path], selection: Selection, *, sections: bool = False
) -> LogInspection:
    """Verify everything and gather what to show."""
    with ExitStack() as stack:
        stores = opened_stores(paths, stack)
        for attempt in range(_ATTEMPTS):
            try:
                found = _gather(paths, stores, selection, sections)
            except NotALog as error:
                raise pointed(paths, error) from None
            except FileNotFoundError:
                continue  # trimmed meanwhile
            if found.report.intact or attempt == _ATTEMPTS - 1:
                return found
    raise StorageFault("files of the log keep vanishing: it is being trimmed; inspect it again")


def _gather(
    paths: Sequence[Path], stores: Sequence[Store], selection: Selection, sections: bool
) -> LogInspection:
    report = verify(stores)
    made = made_by(report.descriptor)
    decode = made if sections else None
    frames = [frame_facts(frame, decode) for frame in _selected(stores, report, selection)]
    extent, _ = extent_of(lambda: Log.open_reader(stores).frames_backwards())
    return LogInspection(list(paths), report, made, extent, frames)


def made_by(descriptor: Descriptor | None) -> Made:
    """What the metadata says; what cannot be understood is as if it were not there."""
    if descriptor is None:
        return Made()
    contents = Contents(descriptor)
    return Made(_understood(contents.schema), _understood(lambda: _spec_of(contents)))


def _spec_of(contents: Contents) -> AggregateSpec | None:
    return None if contents.operator is None else spec_from_json(contents.operator)


def _understood(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (DamagedLog, TypeError, ValueError, UsageError):
        return None


def extent_of(
    newest_first: Callable[[], Iterator[Frame]],
) -> tuple[Extent, EventualCheckpoint | None]:
    """How much recovery would read, and the eventual checkpoint it would find."""
    read: list[int] = []

    def counted() -> Iterator[Frame]:
        for frame in newest_first():
            read.append(frame.length)
            yield frame

    try:
        checkpoint = construct(counted())
    except (DamagedData, StorageFault, FileNotFoundError) as error:
        return Extent(reason=str(error)), None
    if checkpoint is None:
        return Extent(), None
    return Extent(len(read), checkpoint.extent_records, sum(read)), checkpoint


# --- frames ----------------------------------------------------------------------------------


def _selected(stores: Sequence[Store], report: LogReport, selection: Selection) -> list[Frame]:
    """The chosen whole frames, in order, read straight from the segments, damage or not."""
    if report.descriptor is None:
        return []
    runs = [run for segment in report.segments if segment.live for run in segment.runs]
    end = max((stop for _, stop in runs), default=0)
    first, end = selection.bounds(report.first_sequence, end)
    chosen = {
        frame.sequence: frame
        for segment in report.segments
        if segment.live and any(start < end and stop > first for start, stop in segment.runs)
        for frame in _frames_of(stores[segment.stripe], segment, report.descriptor.log_id)
        if first <= frame.sequence < end
    }
    return [chosen[sequence] for sequence in sorted(chosen)]


def _frames_of(store: Store, report: SegmentReport, log_id: int) -> Iterator[Frame]:
    """Every whole frame that `verify` counted in a segment."""
    segment = segment_id(report.name)
    assert segment is not None
    window = Window(store, segment, log_id=log_id, stop=report.size)
    waiting = deque(report.runs)
    for found in headers_in(window, SEGMENT_HEADER_SIZE):
        while waiting and found.header.sequence >= waiting[0][1]:
            waiting.popleft()
        if not waiting:
            return
        if found.header.sequence < waiting[0][0]:
            continue
        try:
            yield window.frame(found.offset)
        except DamagedFrame:
            continue


def frame_facts(frame: Frame, decode: Made | None) -> FrameFacts:
    """What a frame holds; with `decode`, its sections too."""
    return FrameFacts(
        sequence=frame.sequence,
        epoch=frame.epoch,
        position=frame.position,
        tuples=frame.tuples,
        t_end=frame.t_end,
        timestamp=event_time(frame.timestamp),
        open_windows=frame.open_windows,
        opens=_footprints(frame, SectionKind.OPENS),
        checks=_footprints(frame, SectionKind.CHECKS),
        records=frame.records,
        bytes=frame.length,
        segment=frame.segment,
        offset=frame.offset,
        sections=[] if decode is None else _sections(frame, decode),
    )


def event_time(clock: int) -> int | str | None:
    """The event-time clock, None when it has not started, "ended" at the end of the stream."""
    if clock >= TIME_LIMIT:
        return "ended"
    return told_by(clock)


def _footprints(frame: Frame, kind: SectionKind) -> int | None:
    try:
        return int(unpack_parts(frame.section(kind), frame.t_end)[0].size)
    except DamagedFrame:
        return None


def _sections(frame: Frame, made: Made) -> list[SectionFacts]:
    return [
        SectionFacts(
            section.kind.name,
            section.output,
            memoryview(section.payload).nbytes,
            _rows(frame, made.schema)
            if section.kind == SectionKind.RESULTS and section.output == RESULTS_OUTPUT
            else None,
        )
        for section in frame.sections
    ]


def _rows(frame: Frame, schema: pa.Schema | None) -> list[dict[str, Any]] | None:
    if schema is None:
        return None
    try:
        batch = result_batch(frame, schema)
    except DamagedFrame:
        return None  # another operator's results, or another schema's
    return None if batch is None else batch.to_pylist()

"""The lineage of a log: which epochs wrote it, and where each of them began.

An epoch has one writer, who begins where the log ended when it was opened.  In a copy of the log
that is continued elsewhere, an epoch may be given again; its writer has another tag, drawn by
chance.  So two logs of one id in which the same writer wrote the tuple before a position are the
same log up to there (the log matching property of Raft, with writers for terms).  Whoever remembers
a position and a lineage can tell whether a log it meets later is the one it has read, or an older
copy, or another past that was written over an older copy.

A log that went back has a lineage like any other: the epoch that went back begins where it went
back to.  Whoever has read further has a tuple of another writer there, and is told so.

The design is argued in docs/design/one-history.md.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from rewake.log.files.claims import current_claim
from rewake.log.files.descriptor import Descriptor, read_descriptor
from rewake.log.files.layout import MAX_COUNT, segment_id
from rewake.log.reading.chain import Chain
from rewake.log.reading.survey import Survey, survey
from rewake.log.reading.view import ATTEMPTS
from rewake.log.recover import recover
from rewake.log.store import Store
from rewake.model.errors import DamagedLog, HistoryMismatch, NotALog

__all__ = ["MAX_STEPS", "WHAT_TO_DO", "Lineage", "LogRecord", "Step", "check_record"]

# More attempts than this ago, nobody asks who wrote what; it bounds messages and files.
MAX_STEPS: Final = 1000

WHAT_TO_DO: Final = (
    "bring all parts back as they were at one time (`rewake restore`), or start the query in a "
    "new folder"
)


class Step(NamedTuple):
    """An epoch, the position of the first tuple that it could write, and its writer's tag."""

    epoch: int
    position: int
    tag: int = 0

    @property
    def who(self) -> tuple[int, int]:
        """The writer; its position rises when what it wrote first is trimmed."""
        return self.epoch, self.tag


@dataclass(frozen=True, slots=True)
class Lineage:
    """Who wrote a log: steps in the order of epochs; `end` is the position behind its last tuple.

    What came before the first step is not known (any more).
    """

    log_id: int
    steps: tuple[Step, ...]
    end: int = 0

    @classmethod
    def of(cls, log_id: int, chain: Chain, end: int = 0) -> "Lineage":
        """The lineage that the headers of a log's live segments tell."""
        steps: list[Step] = []
        for live in chain:
            if not steps or steps[-1].epoch != live.id.epoch:
                steps.append(Step(live.id.epoch, live.header.position, live.header.tag))
        return cls(log_id, tuple(steps), end)

    def writer(self, position: int) -> Step | None:
        """Who wrote the tuple before `position`; None when that is not known (any more)."""
        return next((step for step in reversed(self.steps) if step.position < position), None)

    def since(self, position: int) -> "Lineage":
        """As much as somebody needs to know who is at `position`, or further on."""
        first = max(
            (number for number, step in enumerate(self.steps) if step.position < position),
            default=0,
        )
        return replace(self, steps=self.steps[max(first, len(self.steps) - MAX_STEPS) :])

    def followed_by(self, later: "Lineage") -> "Lineage":
        """What is known when `later`, which agrees with this one, has been told."""
        first = later.steps[0].epoch if later.steps else MAX_COUNT
        steps = (*(step for step in self.steps if step.epoch < first), *later.steps)
        return replace(later, steps=steps[-MAX_STEPS:])


class LogRecord(NamedTuple):
    """What the coordinator remembers of a log: epoch `epoch` had frames below `sequence` there.

    `tag` is that writer's: in another branch of this history somebody else may have the epoch.
    """

    log_id: int
    epoch: int
    sequence: int
    tag: int = 0


def check_record(stores: Sequence[Store], record: LogRecord, who: str) -> None:
    """Raise HistoryMismatch unless the log is at least as new as what is remembered of it.

    What a later epoch took back need not be there.  Nothing is changed, so that the right parts can
    still be put in place.
    """
    for _ in range(ATTEMPTS - 1):
        # A writer that is not fenced yet may trim meanwhile: what is damaged stays so.
        with suppress(DamagedLog, FileNotFoundError):
            return _check_record(stores, record, who)
    return _check_record(stores, record, who)


def _check_record(stores: Sequence[Store], record: LogRecord, who: str) -> None:
    try:
        descriptor = read_descriptor(stores)
    except NotALog as error:
        raise HistoryMismatch(
            f"the log of {who} is not there, though the coordinator knows that epoch "
            f"{record.epoch} wrote {record.sequence} frames to it; {WHAT_TO_DO}"
        ) from error
    if descriptor.log_id != record.log_id:
        raise HistoryMismatch(
            f"the log of {who} is another one ({descriptor.log_id:x}) than the coordinator knows "
            f"({record.log_id:x}): it was replaced, or made anew; {WHAT_TO_DO}"
        )
    newest = max(_epochs(stores), default=-1)
    if newest < record.epoch:
        raise HistoryMismatch(
            f"the log of {who} is older than the coordinator's state: its newest epoch is "
            f"{newest}, but epoch {record.epoch} has written to it; {WHAT_TO_DO}"
        )
    found = survey(stores, descriptor)
    for step in Lineage.of(record.log_id, found.chains[0]).steps:
        if step.epoch == record.epoch and step.tag != record.tag:
            raise HistoryMismatch(
                f"the log of {who} was written by another epoch {step.epoch} than the coordinator "
                f"knows: it is a copy that was continued elsewhere; {WHAT_TO_DO}"
            )
    kept = min(record.sequence, found.seals.limit(record.epoch))
    end = _end(stores, descriptor, found, kept)
    if end < kept:
        raise HistoryMismatch(
            f"the log of {who} is older than the coordinator's state: it ends at frame {end}, but "
            f"{kept} frames were durable in epoch {record.epoch}; {WHAT_TO_DO}"
        )


def _epochs(stores: Sequence[Store]) -> Iterable[int]:
    yield current_claim(stores[0])[0]
    for name in stores[0].names():
        segment = segment_id(name)
        if segment is not None:
            yield segment.epoch


def _end(stores: Sequence[Store], descriptor: Descriptor, found: Survey, enough: int) -> int:
    """Where the log ends; frames are only read when the mark alone does not prove enough."""
    if found.mark is not None and not found.outranked:
        durable = found.mark.durable.sequence
        if durable >= enough:
            return durable
    return 0 if found.empty else recover(stores, found, log_id=descriptor.log_id).end.sequence

"""Cursors: the frames of all stripes as one sequence, forwards or backwards.

A stripe's visible bytes must be frames from end to end, and over all stripes the sequences must
have no gap.  Anything else is damage and is raised as such, with its place.  A segment that
disappears under a cursor was trimmed: `OutOfRange` says what is still there.  When the log goes
back behind a cursor, that one raises `TakenBack`; one that has not come so far goes on.
"""

from collections.abc import Sequence

from rewake.log.files.layout import SegmentId
from rewake.log.files.segment import SEGMENT_HEADER_SIZE
from rewake.log.frame import TRAILER_SIZE, Frame, decode_frame, decode_header, frame_length_before
from rewake.log.reading.chain import LiveSegment
from rewake.log.reading.scan import CHUNK_BYTES, Window
from rewake.log.reading.seek import stripe_place
from rewake.log.reading.view import Viewer
from rewake.model.errors import DamagedFrame, DamagedLog, OutOfRange, TakenBack

__all__ = ["BackwardCursor", "Tail"]


class _Unreadable(Exception):
    """Visible bytes that are no frame: found by a stripe, told to the caller by its cursor."""

    def __init__(self, segment: str, offset: int, where: str, error: DamagedFrame) -> None:
        super().__init__(where)
        self.segment = segment
        self.offset = offset
        self.where = where
        self.error = error


class Tail:
    """The frames from `sequence` on, as far as the viewer sees; `poll` it to follow the log."""

    def __init__(self, viewer: Viewer, sequence: int, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.sequence = sequence
        self._backs = len(viewer.backs)
        self._viewer = viewer
        self._chunk_bytes = chunk_bytes
        self._stripes: list[_StripeForward] = []

    def peek(self) -> Frame | None:
        """The next frame, or None when it is not visible yet."""
        stripe = self._next()
        return None if stripe is None else stripe.peek()

    def take(self) -> Frame | None:
        """The next frame, moving on; None when it is not visible yet."""
        stripe = self._next()
        if stripe is None:
            return None
        self.sequence += 1
        return stripe.take()

    def poll(self, *, max_frames: int = 1024, refresh: bool = True) -> list[Frame]:
        """The next complete frames, at most `max_frames`; empty when there is nothing new.

        A host that knows how far the writer is may share one reader among tails and refresh it
        itself.
        """
        if refresh and self.sequence >= self._viewer.end_sequence:
            self._viewer.refresh()
        self._check_back()
        frames: list[Frame] = []
        while len(frames) < max_frames and (frame := self.take()) is not None:
            frames.append(frame)
        return frames

    def _check_back(self) -> bool:
        """Whether the log has gone back since the last call; TakenBack when it did behind this."""
        backs = self._viewer.backs
        if len(backs) == self._backs:
            return False
        _refuse_taken_back(min(backs[self._backs :]), self.sequence)
        self._backs = len(backs)
        self._stripes = []
        return True

    def _next(self) -> "_StripeForward | None":
        self._check_back()
        if self.sequence >= self._viewer.end_sequence:
            return None
        try:
            return self._find()
        except FileNotFoundError:
            self._viewer.reload()
            if self._check_back():
                return self._next()
            raise _trimmed(self._viewer, self.sequence) from None
        except _Unreadable as bad:
            raise _damaged(bad, self.sequence) from bad

    def _find(self) -> "_StripeForward":
        if not self._stripes:
            self._stripes = [
                _StripeForward(self._viewer, stripe, self.sequence, self._chunk_bytes)
                for stripe in range(len(self._viewer.stores))
            ]
        for stripe in self._stripes:
            frame = stripe.peek()
            while frame is not None and frame.sequence < self.sequence:
                stripe.take()
                frame = stripe.peek()
            if frame is not None and frame.sequence == self.sequence:
                return stripe
        raise _gap(self._stripes[0].name, self.sequence)


class _StripeForward:
    """The frames of one stripe, forwards."""

    def __init__(self, viewer: Viewer, stripe: int, sequence: int, chunk_bytes: int) -> None:
        self._viewer = viewer
        self._stripe = stripe
        self._chunk_bytes = chunk_bytes
        self._head: Frame | None = None
        segment, self._offset = stripe_place(viewer, stripe, sequence)
        self._window = self._open(segment)

    @property
    def name(self) -> str:
        return self._window.name

    def peek(self) -> Frame | None:
        if self._head is None and self._reach():
            self._head = _decoded(self._window, self._offset)
        return self._head

    def take(self) -> Frame:
        frame = self._head
        assert frame is not None
        self._head = None
        self._offset += frame.length
        return frame

    def _reach(self) -> bool:
        """Come to where the next frame begins; False when none is visible yet."""
        if self._offset < self._window.stop:
            return True
        visible = self._viewer.view.visible(self._stripe)
        place = _place(visible, self._window.segment)
        self._window.stop = _end(visible[place])
        if self._offset < self._window.stop:
            return True
        if place + 1 == len(visible):
            return False
        self._window = self._open(visible[place + 1].id)
        self._offset = SEGMENT_HEADER_SIZE
        return self._reach()

    def _open(self, segment: SegmentId) -> Window:
        visible = self._viewer.view.visible(self._stripe)
        return Window(
            self._viewer.stores[self._stripe],
            segment,
            log_id=self._viewer.log_id,
            stop=_end(visible[_place(visible, segment)]),
            chunk_bytes=self._chunk_bytes,
        )


class BackwardCursor:
    """The frames from the end back to the first retained one, as the viewer sees them now."""

    def __init__(self, viewer: Viewer, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.sequence = viewer.end_sequence
        self._viewer = viewer
        self._backs = len(viewer.backs)
        self._floor = viewer.view.floor
        self._stripes = [
            _StripeBackward(viewer, stripe, chunk_bytes)
            for stripe in range(len(viewer.view.frontier.ends))
        ]

    def take(self) -> Frame | None:
        """The frame before the last one taken; None at the first retained one."""
        self._check_back()
        if self.sequence <= self._floor:
            return None
        try:
            return self._find()
        except FileNotFoundError:
            self._viewer.reload()
            self._check_back()
            raise _trimmed(self._viewer, self.sequence - 1) from None
        except _Unreadable as bad:
            raise _damaged(bad, self.sequence - 1) from bad

    def _check_back(self) -> None:
        """What is left, below where the log went back to, is as it was."""
        for back in self._viewer.backs[self._backs :]:
            _refuse_taken_back(back, self.sequence)

    def _find(self) -> Frame:
        for stripe in self._stripes:
            frame = stripe.peek()
            if frame is not None and frame.sequence == self.sequence - 1:
                self.sequence -= 1
                return stripe.take()
        raise _gap(self._stripes[0].name, self.sequence - 1)


class _StripeBackward:
    """The frames of one stripe, backwards; many are parsed per read."""

    def __init__(self, viewer: Viewer, stripe: int, chunk_bytes: int) -> None:
        self._segments = list(viewer.view.visible(stripe))
        self._store = viewer.stores[stripe]
        self._log_id = viewer.log_id
        self._chunk_bytes = chunk_bytes
        self._head: Frame | None = None
        self._enter(self._segments.pop())

    @property
    def name(self) -> str:
        return self._window.name

    def peek(self) -> Frame | None:
        while self._head is None:
            if self._end > SEGMENT_HEADER_SIZE:
                self._head = self._decode()
            elif self._segments:
                self._enter(self._segments.pop())
            else:
                return None
        return self._head

    def take(self) -> Frame:
        frame = self._head
        assert frame is not None
        self._head = None
        self._end = frame.offset
        return frame

    def _enter(self, segment: LiveSegment) -> None:
        self._end = _end(segment)
        self._window = Window(self._store, segment.id, log_id=self._log_id, stop=self._end)
        self._buffer = b""
        self._start = self._end

    def _decode(self) -> Frame:
        try:
            self._have(TRAILER_SIZE)
            length = frame_length_before(self._buffer, self._end - self._start)
            self._have(length)
            place = self._end - self._start - length
            header = self._window.checked(decode_header(self._buffer, place))
            return decode_frame(self._buffer, place, header, segment=self.name, base=self._start)
        except DamagedFrame as error:
            raise _Unreadable(self.name, self._end, f"before byte {self._end}", error) from error

    def _have(self, size: int) -> None:
        """Have `size` bytes before the end in the buffer; DamagedFrame when there are fewer."""
        if self._end - self._start >= size:
            return
        start = max(SEGMENT_HEADER_SIZE, self._end - max(size, self._chunk_bytes))
        if self._end - size < start:
            raise DamagedFrame(f"{size} bytes do not fit between byte {start} and {self._end}")
        self._buffer = self._store.read(self.name, start, self._end - start)
        self._start = start


def _end(segment: LiveSegment) -> int:
    assert segment.end is not None
    return segment.end


def _place(visible: Sequence[LiveSegment], segment: SegmentId) -> int:
    for place, live in enumerate(visible):
        if live.id == segment:
            return place
    raise FileNotFoundError(segment.name)


def _decoded(window: Window, offset: int) -> Frame:
    try:
        return window.frame(offset)
    except DamagedFrame as error:
        raise _Unreadable(window.name, offset, f"at byte {offset}", error) from error


def _damaged(bad: _Unreadable, sequence: int) -> DamagedLog:
    return DamagedLog(
        f"segment {bad.segment} is damaged {bad.where}, near sequence {sequence}: {bad.error}; "
        "restore the segment from a copy, or see what can be saved with `rewake inspect log PATH`",
        segment=bad.segment,
        offset=bad.offset,
        sequence=sequence,
    )


def _gap(segment: str, sequence: int) -> DamagedLog:
    return DamagedLog(
        f"frame {sequence} is missing from the log, near segment {segment}; see what can be saved "
        "with `rewake inspect log PATH`",
        segment=segment,
        sequence=sequence,
    )


def _refuse_taken_back(back: int, sequence: int) -> None:
    if sequence > back:
        raise TakenBack(
            f"the log has gone back to frame {back} while it was read up to frame {sequence}: what "
            f"was read from {back} on is not part of it any more; undo it, and read on from {back}"
        )


def _trimmed(viewer: Viewer, sequence: int) -> OutOfRange:
    return OutOfRange(
        f"frame {sequence} was trimmed while it was being read: the first available is "
        f"{viewer.view.floor}"
    )

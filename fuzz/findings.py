"""What targets do wrong: told apart by where it happens, saved with the command to replay it."""

import hashlib
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from fuzz.targets import TARGETS

__all__ = ["Findings", "TookTooLong", "attempt", "target_of"]

SECONDS_PER_INPUT = 1.0


class TookTooLong(Exception):
    """An input kept the processor busy for longer than is allowed."""


def attempt(target: str, data: bytes, *, seconds: float = SECONDS_PER_INPUT) -> Exception | None:
    """Run one input; what came out that must not."""
    try:
        with _limited(seconds):
            TARGETS[target](data)
    except Exception as error:
        return error
    return None


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Limit the processor time, which a busy machine does not change."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TookTooLong(f"more than {seconds} s of processor time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


class Findings:
    """The inputs that a process has found, one per kind of error and place."""

    def __init__(self, target: str, folder: Path) -> None:
        self._target = target
        self._folder = folder
        self._seen: set[str] = set()

    def keep(self, data: bytes, error: Exception) -> Path | None:
        """Save the input, unless one with the same error at the same place was found before."""
        signature = _signature(error)
        if signature in self._seen:
            return None
        self._seen.add(signature)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._target}-{signature}"
        story = "".join(traceback.format_exception(error))
        command = f"python fuzz/run.py --replay {path}"
        path.with_suffix(".txt").write_text(f"{story}\nreplay: {command}\n")
        path.write_bytes(data)
        return path


def _signature(error: Exception) -> str:
    """Kind of error and innermost place in Rewake; a hang is at its outermost place."""
    places = [
        f"{Path(place.filename).name}:{place.name}:{place.line}"
        for place in traceback.extract_tb(error.__traceback__)
        if "rewake" in place.filename or "fuzz" in Path(place.filename).parts
    ]
    place = places[min(4, len(places) - 1)] if isinstance(error, TookTooLong) else places[-1]
    kind = type(error).__name__
    return f"{kind}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"


def target_of(path: Path) -> str | None:
    """The target of a saved input: its folder's name, or the beginning of its own."""
    for name in (path.parent.name, path.name.split("-")[0]):
        if name in TARGETS:
            return name
    return None

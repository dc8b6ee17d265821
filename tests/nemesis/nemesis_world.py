"""A running query, its producers, and the accidents that befall them, grown from a seed.

What always holds: an accident is over when it returns, save for the disorder that it leaves.  A
part that was put back from an older copy is either refused by name, and then the right one is put
back, or accepted; whether that was right shows in the sinks at the end.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Self

from nemesis_driver import ENTRIES, REFUSED, WINDOW
from nemesis_oracle import check_tuples, expected_sums
from nemesis_producers import Stubborn

from rewake import read_parts
from rewake.model.errors import UsageError
from rewake.net.clients.client import Endpoint

PATIENCE_SECONDS = 120.0
_HERE = Path(__file__).parent
# How a driver may say that parts do not belong together.
_REFUSALS = ("MisfitQuery", "HistoryMismatch", "Damaged")
_FLOOD = """
import socket, sys, time
host, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
held, end = [], time.monotonic() + seconds
while time.monotonic() < end or (not held and time.monotonic() < end + 20):
    try:
        held.append(socket.create_connection((host, port), 0.2))
    except OSError:
        pass
    if len(held) == 1:
        print("flooding", flush=True)
    del held[:-400]
"""


class World:
    """Everything below one folder; `small_disk` says that the folder is one that can be filled."""

    def __init__(self, folder: Path, seed: int, *, total: int, small_disk: bool = False) -> None:
        self.folder, self.random = folder, Random(seed)
        self._coming: list[Callable[[], str | None]] = []
        self._small_disk = small_disk
        self._copies = folder.parent / f"{folder.name}-copies"
        # Not on the disk that is filled: who cannot say anything ends.
        self._outputs = Path(mkdtemp(prefix="nemesis-"))
        self._driver: subprocess.Popen[bytes] | None = None
        self._lives = 0
        self.counted: Counter[str] = Counter()
        self.totals = dict.fromkeys(range(3), total)
        self.producers = [
            Stubborn(folder, ENTRIES[number % len(ENTRIES)], number, total, seed)
            for number in self.totals
        ]
        self._start()
        self._await_flow()

    def _await_flow(self) -> None:
        """Until every producer has something to lose."""
        end = time.monotonic() + PATIENCE_SECONDS
        for producer in self.producers:
            producer.allowed = 20
            while not producer.acknowledged:
                assert time.monotonic() < end, f"nothing flows: {self._told()}"
                time.sleep(0.02)

    # --- the driver --------------------------------------------------------------------------

    @property
    def _output(self) -> Path:
        return self._outputs / f"driver-{self._lives}.txt"

    def _start(self) -> None:
        self._copies.mkdir(exist_ok=True)
        self._lives += 1
        command = [sys.executable, str(_HERE / "nemesis_driver.py"), str(self.folder)]
        with self._output.open("wb") as output:
            self._driver = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True
            )

    def _processes(self) -> list[int]:
        """All that belong to this life of the query: they have its output open."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.readlink(process / "fd" / "2") == str(self._output):
                    found.append(int(process.name))
        return found

    def _end(self) -> None:
        """Kill every process of the query, and wait until they are gone."""
        assert self._driver is not None
        end = time.monotonic() + PATIENCE_SECONDS
        while found := self._processes():
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._driver.poll()
            assert time.monotonic() < end, "the query's processes do not end"
            time.sleep(0.02)
        self._driver.wait(PATIENCE_SECONDS)

    def _told(self) -> str:
        return self._output.read_text(errors="replace")

    def _keep_driver(self) -> None:
        """One that was killed is started again; that it gives up by itself is a failure."""
        assert self._driver is not None
        code = self._driver.poll()
        if code == -signal.SIGKILL:
            self._end()
            self._start()
        elif code not in (None, 0):
            raise AssertionError(f"the driver ended with {code}: {self._told()}")

    # --- accidents ---------------------------------------------------------------------------

    def strike(self) -> None:
        """One accident; tuples flow meanwhile."""
        for producer in self.producers:
            producer.allowed += self.random.randint(20, 120)
        if not self._coming:
            # Each kind before any comes again, in an order by chance.
            accidents = [self._kill, self._pause, self._flood, self._restart, self._put_back]
            accidents += [self._fill_disk if self._small_disk else self._kill]
            self._coming = self.random.sample(accidents, len(accidents))
        accident = self._coming.pop()
        # Some say what they came to, when that is not what they are called.
        self.counted[accident() or accident.__name__.strip("_")] += 1
        self._keep_driver()
        for producer in self.producers:
            if producer.error is not None:
                raise producer.error
        time.sleep(self.random.choice((0.0, 0.05, 0.4)))

    def _kill(self) -> None:
        """Any process: driver, fork server or node."""
        if found := self._processes():
            with suppress(ProcessLookupError):
                os.kill(self.random.choice(found), signal.SIGKILL)

    def _pause(self) -> None:
        """Asleep for a while, long enough to be replaced or not."""
        if not (found := self._processes()):
            return
        pid = self.random.choice(found)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self.random.choice((0.05, 0.5, 3.0)))
            os.kill(pid, signal.SIGCONT)

    def _flood(self) -> str | None:
        """Two strangers connect as often as they can, for a second, while somebody is killed."""
        address = self._listening()
        if address is None:
            return "flood of a query that is over"
        command = [sys.executable, "-c", _FLOOD, *map(str, address), "1.0"]
        strangers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
        begun = [stranger.stdout.readline() for stranger in strangers if stranger.stdout]
        self._kill()
        for stranger in strangers:
            stranger.communicate(timeout=PATIENCE_SECONDS)
            assert stranger.returncode == 0
        if begun == [b"flooding\n"] * 2:
            return None
        assert self._driver is not None
        assert self._driver.poll() == 0, f"nobody could connect: {self._told()}"
        return "flood of a query that is over"

    def _listening(self) -> tuple[str, int] | None:
        """Where a coordinator answers, waited for; None when the query is over."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            self._keep_driver()
            assert self._driver is not None
            if self._driver.poll() == 0:
                return None
            # There is no endpoint yet, or that of a driver which was killed.
            with suppress(UsageError, OSError):
                address = Endpoint.of(self.folder / "query").address
                with socket.create_connection(address, 1.0):
                    return address
            assert time.monotonic() < end, f"nobody listens for long: {self._told()}"
            time.sleep(0.05)

    def _fill_disk(self) -> None:
        """No room for anybody for a moment, in which somebody is killed as well."""
        ballast = self.folder / "ballast"
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        if self.random.random() < 0.5:
            self._kill()
        time.sleep(self.random.choice((0.2, 1.0)))
        ballast.unlink()

    def _restart(self) -> None:
        """All processes at once; what is there then is kept as an older copy for later."""
        self._end()
        copy = self._copies / "older"
        if not copy.exists() or self.random.random() < 0.5:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(self.folder, copy)
        self._start()

    def _put_back(self) -> None:
        """One part from an older copy: refused, or harmless."""
        copy = self._copies / "older"
        if not copy.exists():
            self._restart()
        self._end()
        part = self.random.choice(self._parts(copy))
        here, aside = self.folder / part, self._copies / "aside"
        _remove(aside)
        _move(here, aside)
        _copy(copy / part, here)
        self._start()
        if self._goes_on():
            self.counted[f"accepted: {part.name}"] += 1
            return
        assert self._driver is not None
        told = self._told()
        assert self._driver.poll() == REFUSED, f"{part}: {told}"
        assert any(word in told for word in _REFUSALS), f"{part}: {told}"
        assert "Traceback" not in told, f"{part}: {told}"
        self.counted["refused"] += 1
        self._end()
        _remove(here)
        _move(aside, here)
        self._start()

    def _goes_on(self) -> bool:
        """Whether what producers send now reaches the sinks; False when the driver gives up.

        Entries take tuples while a node behind them is still to find that its log is an old one.
        """
        assert self._driver is not None
        end = time.monotonic() + PATIENCE_SECONDS
        for producer in self.producers:
            producer.allowed += 5
        while not self._arrived() and all(each.error is None for each in self.producers):
            if self._driver.poll() is not None:
                return self._driver.poll() == 0
            assert time.monotonic() < end, f"what was sent does not arrive: {self._told()}"
            time.sleep(0.05)
        return True

    def _arrived(self) -> bool:
        """Whether producers have sent all that they may, and the sinks hold what comes of it."""
        if any(not each.done and each.acknowledged < each.allowed for each in self.producers):
            return False
        if any(not (self.folder / sink / "_rewake.json").exists() for sink in ("tuples", "sums")):
            return False  # one that was put back as it was before anything came
        found = read_parts(self.folder / "tuples")
        sent = sum(each.acknowledged for each in self.producers)
        return len(found) >= sent and self._sums() == expected_sums(found, WINDOW)

    def _sums(self) -> list[tuple[int, int]]:
        found = read_parts(self.folder / "sums")
        return list(zip(found["key"].to_pylist(), found["sum_number"].to_pylist(), strict=True))

    @staticmethod
    def _parts(copy: Path) -> list[Path]:
        """What somebody may restore by itself: a log, a sink, the coordinator's file."""
        query = copy / "query"
        found = [query / "coordinator.json", copy / "tuples", copy / "sums"]
        found += sorted((query / "nodes").iterdir())
        return [each.relative_to(copy) for each in found if each.exists()]

    # --- the end -----------------------------------------------------------------------------

    def finish(self) -> None:
        """No more accidents: producers send the rest, the query ends by itself."""
        for producer, total in zip(self.producers, self.totals.values(), strict=True):
            producer.allowed = total
        for producer in self.producers:
            end = time.monotonic() + PATIENCE_SECONDS
            while not producer.done and producer.error is None and time.monotonic() < end:
                producer.join(0.2)
                self._keep_driver()
            if producer.error is not None:
                raise producer.error
            assert producer.done, f"a producer cannot get through: {self._told()}"
        assert self._driver is not None
        assert self._driver.wait(PATIENCE_SECONDS) == 0, self._told()

    def check(self) -> None:
        """The sinks hold what they must."""
        found = read_parts(self.folder / "tuples")
        check_tuples(found, self.totals)
        assert self._sums() == expected_sums(found, WINDOW)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for producer in self.producers:
            producer.over.set()
        self._end()
        for producer in self.producers:
            producer.join(PATIENCE_SECONDS)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _move(source: Path, target: Path) -> None:
    shutil.move(source, target)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)

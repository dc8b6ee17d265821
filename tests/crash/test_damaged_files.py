"""Every file of a log zeroed, cut, deleted or made an older copy: all is read, or it is refused."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache

import pytest
from log_vocabulary import read_numbers, sample_turn

from rewake.log.files.layout import MARK, segment_id
from rewake.log.files.mark import SLOT_SIZE
from rewake.log.files.segment import SEGMENT_HEADER_SIZE
from rewake.log.log import Log
from rewake.log.memory import MemoryStore
from rewake.log.retention import Needs, Retention, trim
from rewake.log.verify import verify
from rewake.log.writing.host import DirectWriter
from rewake.log.writing.pipeline import Limits
from rewake.model.errors import DamagedLog, NotALog

Files = dict[str, bytes]
Moment = tuple[Files, ...]
LIMITS = Limits(segment_bytes=900, index_interval=200)
TURNS_PER_LIFE = 9


class Life:
    """A log with all that was acknowledged, and what its folders held at moments before."""

    def __init__(
        self, stripes: int, *, lives: int, closed: bool, trimmed: int = 0, back: int = 0
    ) -> None:
        self._stores = [MemoryStore() for _ in range(stripes)]
        self.moments: list[Moment] = []
        self.first = 0
        self.acknowledged: dict[int, int] = {}  # by sequence, numbers that are never used again
        self.number = 0
        Log.create(self._stores, "damaged", log_id=0xDA3A6E)
        self.look()
        for life in range(lives):
            self.live(life, closed=closed)
        if trimmed:
            trimming = trim(self._stores, Needs(recovery=trimmed), Retention(max_bytes=0))
            assert trimming.segments > 0
            self.first = trimming.floor
        if back:
            self.acknowledged = {s: n for s, n in self.acknowledged.items() if s < back}
            self.live(lives, closed=closed, back_to=back)
        self.look()

    def live(self, epoch: int, *, closed: bool, back_to: int | None = None) -> None:
        stores = [store.attach() for store in self._stores]
        writer = DirectWriter(stores, epoch=epoch, limits=LIMITS, back_to=back_to)
        for _ in range(TURNS_PER_LIFE):
            self.acknowledged[writer.append(sample_turn(self.number))] = self.number
            self.number += 1
            self.look()
        if closed:
            writer.close()
        for store in writer.stores:
            store.close()

    def look(self) -> None:
        self.moments.append(
            tuple({name: s.read(name, 0, 1 << 20) for name in s.names()} for s in self._stores)
        )

    @property
    def files(self) -> Moment:
        return self.moments[-1]

    def check(self, files: Moment) -> bool:
        """Whether reader, writer and `verify` refuse; otherwise all of them find everything."""
        expected = {s: n for s, n in self.acknowledged.items() if s >= self.first}
        outcomes = {
            "reader": _refuses(lambda: self._found(files, expected)),
            "writer": _refuses(lambda: self._opened(files, expected)),
        }
        if outcomes["reader"]:
            with suppress(NotALog):
                assert not verify(_disks(files)).intact, "verify calls intact what is refused"
        return any(outcomes.values())

    @staticmethod
    def _found(files: Moment, expected: dict[int, int]) -> None:
        numbers = read_numbers(_disks(files))
        assert expected.items() <= numbers.items(), f"{len(numbers)} of {len(expected)} are shown"

    def _opened(self, files: Moment, expected: dict[int, int]) -> None:
        stores = _disks(files)
        assert Log.open_for_append(stores).frontier.sequence > max(expected)
        numbers = read_numbers(stores)
        assert expected.items() <= numbers.items(), f"{len(numbers)} of {len(expected)} are left"


def _disks(files: Moment) -> list[MemoryStore]:
    return [MemoryStore.holding(contents) for contents in files]


def _refuses(act: Callable[[], None]) -> bool:
    try:
        act()
    except (DamagedLog, NotALog):
        return True
    return False


@cache
def life(stripes: int, lives: int, closed: bool, trimmed: int, back: int = 0) -> Life:
    return Life(stripes, lives=lives, closed=closed, trimmed=trimmed, back=back)


SHAPES = [
    pytest.param(1, 1, False, 0, 0, id="killed"),
    pytest.param(1, 1, True, 0, 0, id="closed"),
    pytest.param(1, 3, False, 0, 0, id="succeeded"),
    pytest.param(1, 3, True, 14, 0, id="trimmed"),
    pytest.param(2, 2, False, 0, 0, id="striped"),
    pytest.param(2, 3, True, 14, 0, id="striped and trimmed"),
    pytest.param(1, 2, False, 0, 7, id="gone back"),
    pytest.param(1, 3, True, 14, 20, id="trimmed and gone back"),
    pytest.param(2, 2, False, 0, 7, id="striped and gone back"),
]


def damages(name: str, data: bytes) -> Iterator[tuple[str, bytes | None]]:
    """What may become of one file; None: it is gone."""
    yield "deleted", None
    yield "zeroed", bytes(len(data))
    cuts = {0, 1, len(data) // 3, len(data) // 2, len(data) - 1, SEGMENT_HEADER_SIZE}
    cuts |= set(range(0, len(data), SLOT_SIZE)) if name == MARK else set()
    for at in sorted(cut for cut in cuts if 0 <= cut < len(data)):
        yield f"cut at {at}", data[:at]
        if at:
            yield f"zeroed from {at}", data[:at] + bytes(len(data) - at)
            yield f"zeroed up to {at}", bytes(at) + data[at:]


def with_file(files: Moment, stripe: int, name: str, data: bytes | None) -> Moment:
    changed = tuple(dict(contents) for contents in files)
    if data is None:
        del changed[stripe][name]
    else:
        changed[stripe][name] = data
    return changed


@pytest.mark.parametrize(("stripes", "lives", "closed", "trimmed", "back"), SHAPES)
def test_a_damaged_file_is_refused_or_costs_no_frame(stripes, lives, closed, trimmed, back, tally):
    """Each file of a log, each damage: a typed error, or every acknowledged frame."""
    log = life(stripes, lives, closed, trimmed, back)
    cases = refused = 0
    for stripe, contents in enumerate(log.files):
        for name, data in contents.items():
            for damage, left in damages(name, data):
                cases += 1
                try:
                    refused += log.check(with_file(log.files, stripe, name, left))
                except AssertionError as error:
                    error.add_note(f"stripe {stripe}, {name}, {damage}")
                    raise
    tally(f"damaged files, {stripes} stripes, {lives} lives: {cases} cases, {refused} refused")
    assert 0 < refused < cases


@pytest.mark.parametrize(("stripes", "lives", "closed", "trimmed", "back"), SHAPES)
def test_an_older_copy_of_one_file_is_refused_or_costs_no_frame(
    stripes, lives, closed, trimmed, back, tally
):
    """Each file of a log as it was at each earlier moment, among the others as they are."""
    log = life(stripes, lives, closed, trimmed, back)
    cases = refused = 0
    for moment, older in enumerate(log.moments[:-1]):
        for stripe, contents in enumerate(older):
            for name, data in contents.items():
                if log.files[stripe].get(name, data) == data:
                    continue
                cases += 1
                try:
                    refused += log.check(with_file(log.files, stripe, name, data))
                except AssertionError as error:
                    error.add_note(f"stripe {stripe}, {name} as at moment {moment}")
                    raise
    tally(f"older copies, {stripes} stripes, {lives} lives: {cases} cases, {refused} refused")
    assert 0 < refused < cases


@pytest.mark.parametrize("stripes", [1, 2])
def test_a_mark_that_says_nothing_is_no_new_log(stripes):
    """A mark of zeros, beside whole, cut, zeroed and missing segments: refused by everybody."""
    log = life(stripes, 1, False, 0)
    blank = with_file(log.files, 0, MARK, bytes(len(log.files[0][MARK])))
    assert log.check(blank)
    for stripe, contents in enumerate(log.files):
        for name, data in contents.items():
            if segment_id(name):
                for _, left in damages(name, data):
                    assert log.check(with_file(blank, stripe, name, left))


def test_a_new_log_has_a_mark_that_can_be_believed():
    """It opens for reader and writer; without its mark it does not."""
    store = MemoryStore()
    Log.create(store, "new", log_id=7)
    files = ({name: store.read(name, 0, 1 << 20) for name in store.names()},)
    assert read_numbers(_disks(files)) == {}
    assert verify(_disks(files)).intact
    assert Log.open_for_append(_disks(files)).frontier.sequence == 0
    for _, left in damages(MARK, files[0][MARK]):
        damaged = with_file(files, 0, MARK, left)
        if left is not None and left[2 * SLOT_SIZE :] == files[0][MARK][2 * SLOT_SIZE :]:
            continue  # what was zero before
        with pytest.raises(DamagedLog):
            Log.open_reader(_disks(damaged))
        with pytest.raises(DamagedLog):
            Log.open_for_append(_disks(damaged))


def test_a_log_without_its_descriptor_is_not_created_anew():
    """Where segments are, a log was: creating another one would bury it."""
    files = life(1, 1, False, 0).files
    bare = with_file(files, 0, "LOG", None)
    stores = _disks(bare)
    for act in (
        lambda: Log.create(stores, "damaged", log_id=1),
        lambda: Log.open_reader(stores),
        lambda: Log.open_for_append(stores),
    ):
        with pytest.raises(DamagedLog, match="LOG"):
            act()
    assert {name: stores[0].read(name, 0, 1 << 20) for name in stores[0].names()} == bare[0]

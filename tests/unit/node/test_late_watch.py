"""When a warning of late tuples is due."""

from rewake.node.late_watch import DROPPED, PERCENT, LateWatch


def _told(watch: LateWatch, dropped: int, percent: float | None) -> bool:
    figures = {DROPPED: dropped} | ({} if percent is None else {PERCENT: percent})
    return watch.heard("sums-0", figures) is not None


def test_it_warns_the_first_time_and_when_they_are_many() -> None:
    """Once for the first, once at 1% of what came, then at every power of ten."""
    watch = LateWatch()
    said = [(0, 0.0), (1, 0.1), (900, 0.9), (950, 1.0), (999, 2.0), (1000, 2.0), (9000, 2.0)]
    assert [_told(watch, *each) for each in said] == [False, True, False, True, False, True, False]


def test_each_step_is_warned_of_by_itself() -> None:
    """And one without a share at every power of ten."""
    watch = LateWatch()
    assert _told(watch, 5, None)
    assert not _told(watch, 9, None)
    assert _told(watch, 10, None)
    assert watch.heard("other", {DROPPED: 1}) is not None


def test_figures_of_another_kind_are_no_warning() -> None:
    """A node says what it likes of itself."""
    watch = LateWatch()
    assert watch.heard("sums-0", {}) is None
    assert watch.heard("sums-0", {DROPPED: "many", PERCENT: None}) is None

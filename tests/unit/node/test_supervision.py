"""Who is started again, and when that is in vain."""

from rewake.node.coordinator.supervision import LIVED_MS, Supervision


def lives(supervision: Supervision, times: list[float], lived_ms: float = 100.0) -> list[bool]:
    """One short life from each of these times on; whether it was given up after each."""
    given_up = []
    for began in times:
        supervision.started("a", began)
        supervision.heard("a", began + lived_ms)
        given_up.append(supervision.ended("a"))
    return given_up


def test_what_fails_at_once_and_again_is_given_up():
    """Three short lives in a row."""
    assert lives(Supervision(3), [0.0, 200.0, 400.0]) == [False, False, True]


def test_failures_after_long_lives_never_add_up():
    """However many they are: each has shown that it can live."""
    times = [1e6 * number for number in range(50)]
    assert not any(lives(Supervision(3), times, lived_ms=LIVED_MS))


def test_a_long_life_forgets_the_short_ones_before_it():
    """The count begins anew."""
    supervision = Supervision(3)
    assert lives(supervision, [0.0, 200.0]) == [False, False]
    assert lives(supervision, [400.0], lived_ms=LIVED_MS) == [False]
    assert supervision.in_vain("a") == 0
    assert lives(supervision, [5e4, 6e4, 7e4]) == [False, False, True]


def test_whoever_gets_further_has_not_failed_in_vain():
    """Also when it lives for a moment only."""
    supervision = Supervision(3)
    for life in range(20):
        supervision.started("a", life * 100.0)
        supervision.heard("a", life * 100.0 + 50.0, position=float(life))
        assert not supervision.ended("a")
    assert lives(supervision, [3_000.0, 3_100.0, 3_200.0]) == [False, False, True]


def test_to_come_as_far_as_before_is_not_to_get_further():
    """A tuple that ends every attempt ends them at the same position."""
    supervision = Supervision(3)
    ended = []
    for life in range(4):
        supervision.started("a", life * 100.0)
        supervision.heard("a", life * 100.0 + 10.0, position=float(min(life, 1)))
        supervision.heard("a", life * 100.0 + 50.0, position=1.0)
        ended.append(supervision.ended("a"))
    assert ended == [False, False, False, True]


def test_many_deaths_in_a_short_time_may_be_forgiven():
    """Whatever kills may stop: given up only if it went on for long enough."""
    supervision = Supervision(3, within_ms=10_000.0)
    assert not any(lives(supervision, [float(at) for at in range(0, 9_000, 300)]))
    assert lives(supervision, [9_950.0]) == [True]


def test_one_who_fails_does_not_count_for_another():
    """Each by its name."""
    supervision = Supervision(2)
    for name in ("a", "b"):
        supervision.started(name, 0.0)
        assert not supervision.ended(name)

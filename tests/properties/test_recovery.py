"""The master property: a crash never shows in the output."""

from aggregate_cases import CRASHES, LAST_LIVES, Case, Life, cases, examples
from aggregate_runs import TRIED, crashing, failure_free
from hypothesis import given


@examples(3000)
@given(cases(), CRASHES, LAST_LIVES)
def test_output_after_any_crash_schedule_equals_failure_free_output(
    case: Case, crashes: list[Life], last: Life
) -> None:
    """However often and whenever a process dies, results, late tuples and their order are those
    of a process that does not, byte for byte."""
    TRIED["cases"] += 1
    crashing(case, crashes, last).check_same(failure_free(case))

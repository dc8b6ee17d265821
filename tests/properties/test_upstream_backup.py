"""Upstream backup: whoever dies when, output is that of a run to which nothing happened.

Any program that becomes the same again when it begins empty, with steps around it and a shuffle;
its node, its consumers and the coordinator die at any moment, bookmarks are durable or not.
"""

from dataclasses import dataclass, replace

from aggregate_cases import CUTS, Case, cases, examples
from aggregate_runs import TRIED, forgetting
from backup_world import World, plan_of
from hypothesis import given
from hypothesis import strategies as st
from keyed_cases import as_case, with_end
from program_cases import ProgramCase, program_cases
from session_cases import session_programs

from rewake.operators.sorting.operator import SortSpec


@dataclass(frozen=True)
class FlushedSort(Case):
    """A stream, sorted by its time; the window's size is that of the buffer."""

    def spec(self) -> SortSpec:
        """What is computed."""
        per = tuple(self.by) if self.window[2] % 2 else ()
        return SortSpec(("t",), self.window[1], per, flush=True, route_late=True)

    def operator(self):
        """A new operator."""
        return self.spec().operator(self.schema)


@st.composite
def windows_of_time(draw):
    """Any program over windows of time, tumbling, sliding or with gaps between them."""
    program = draw(program_cases().filter(lambda each: each.stateful))
    size = draw(st.integers(1, 12))
    window = ("time", size, draw(st.sampled_from([size, 1, max(size // 2, 1), size + 3])))
    case = replace(program.case, window=window, timeout=None, slack=draw(st.sampled_from([0, 3])))
    return replace(program, case=with_end(case, draw(st.booleans())))


@st.composite
def sorts(draw):
    """Any stream, sorted, with steps around the sort."""
    case = as_case(FlushedSort, draw(cases()))
    case = replace(case, window=("count", draw(st.integers(1, 6)), draw(st.integers(1, 2))))
    return ProgramCase(
        case=with_end(case, draw(st.booleans())),
        before=draw(st.sampled_from([(), ("some",), ("copied",)])),
        after=draw(st.sampled_from([(), ("last",)])),
        cuts=draw(CUTS),
    )


def check_no_death_shows(program: ProgramCase, seeds: list[int], crashes: float) -> int:
    """So many schedules give what none gives; how often something was read again."""
    with forgetting(program.case):
        plan = plan_of(program.program, program.case.schema, program.schemas)
        events = list(program.events(0, program.cuts))
        untouched = World(plan, events, None)
        untouched.settle()
        replays = 0
        for seed in seeds:
            TRIED["cases"] += 1
            world = World(plan, events, untouched.found)
            world.run(seed, 12 * len(events) + 60, crashes)
            for found, known in zip(world.found, untouched.found, strict=True):
                assert found == known or _as_bytes(found) == _as_bytes(known)
            replays += world.replays
        return replays


def _as_bytes(packets):
    return {
        start: (each.end, each.watermark, bytes(each.payload)) for start, each in packets.items()
    }


SEEDS = st.lists(st.integers(0, 2**32), min_size=1, max_size=3)


@examples(200)
@given(windows_of_time(), SEEDS, st.sampled_from([0.01, 0.03, 0.08]))
def test_windows_of_time_give_what_they_give_without_a_crash(program, seeds, crashes):
    """Tuples, order, positions, cuts and watermarks are the same, by position."""
    check_no_death_shows(program, seeds, crashes)


@examples(200)
@given(session_programs(), SEEDS, st.sampled_from([0.01, 0.03, 0.08]))
def test_sessions_give_what_they_give_without_a_crash(program, seeds, crashes):
    """Also where a watermark decided which sessions there are: it comes again where it was."""
    check_no_death_shows(program, seeds, crashes)


@examples(100)
@given(sorts(), SEEDS, st.sampled_from([0.01, 0.03, 0.08]))
def test_sorts_give_what_they_give_without_a_crash(program, seeds, crashes):
    """Whoever has left the buffer has left it again, by then."""
    check_no_death_shows(program, seeds, crashes)


def test_the_schedules_read_input_again():
    """Else the properties above would say nothing: nodes go back to bookmarks that were kept."""
    case = Case(
        keys=("int64",),
        window=("time", 6, 3),
        functions="integers",
        rows=tuple((at % 3, at, 0.5, at, at - at * 5 % 4) for at in range(60)),
        punctuations=tuple((at, at - 6) for at in range(7, 60, 5)),
        slack=3,
    )
    program = ProgramCase(case=case, before=("some",), parts=2, cuts=(3, 0, 2, 1))
    assert check_no_death_shows(program, list(range(12)), 0.03) > 12

"""Standbys: whatever happens to two places and the link between them, no crash shows."""

import pyarrow as pa
import pytest
from aggregate_cases import examples
from aggregate_runs import TRIED, bytes_of, forgetting, readable
from hypothesis import given
from hypothesis import strategies as st
from program_cases import ProgramLife, program_cases, run
from standby_world import Places

from rewake.recovery.standby.active import ActiveStandby
from rewake.recovery.standby.passive import PassiveStandby

APPROACHES = {
    "passive": PassiveStandby(),
    "passive, at once": PassiveStandby(output="at_once"),
    "passive, often": PassiveStandby(every="2ms", full_every=3),
    "active": ActiveStandby(),
    "active, at once": ActiveStandby(output="at_once"),
}
HAPPENINGS = st.one_of(
    st.tuples(st.just("take"), st.integers(1, 4), st.integers(0, 3)),
    st.tuples(st.just("hear"), st.integers(1, 6)),
    st.tuples(st.just("forget"), st.floats(0, 1)),
    st.tuples(st.sampled_from(["quiet", "quiet", "promoted", "promoted", "replaced", "connect"])),
)


@pytest.mark.parametrize("name", APPROACHES)
@examples(200)
@given(case=program_cases(), happenings=st.lists(HAPPENINGS, max_size=40))
def test_output_is_the_failure_free_one_whatever_happens_to_two_places(name, case, happenings):
    """Byte for byte, each position with one content, and no input is needed that was let go."""
    expected = run(case, "instant", [], ProgramLife(case.cuts))
    with forgetting(case.case):
        places = Places(case, APPROACHES[name])
        now_ms = 0.0
        for what, *how in happenings:
            if what == "take":
                turns, later = how
                now_ms += later
                places.take(turns, now_ms)
            else:
                getattr(places, what)(*how)
        places.quiet()
        places.take(1 << 20, now_ms)
        places.quiet()
        TRIED["cases"] += 1
        found = tables(places, case.schemas)
    for output, pair in enumerate(zip(found, expected.tables, strict=True)):
        assert bytes_of(pair[0]) == bytes_of(pair[1]), (
            f"output {output} differs:\n  found    {readable(pair[0])}\n  "
            f"expected {readable(pair[1])}"
        )


def tables(places, schemas):
    """What was let go, output by output, in the order of positions."""
    batches = [[] for _ in schemas]
    for start in sorted(places.let_go):
        for output, payload in places.let_go[start][1]:
            batches[output].append(pa.ipc.read_record_batch(pa.py_buffer(payload), schemas[output]))
    return [pa.Table.from_batches(*each) for each in zip(batches, schemas, strict=True)]

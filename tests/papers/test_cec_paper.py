"""The sentences of "CEC: Continuous Eventual Checkpointing", as tests.

Quotations are from the paper; G-open, G-check and R are called OPEN, CHECK and RESULT here.
"""

import pytest
from paper_vocabulary import Process, footprints, operator

from rewake.log.frame import decode_frame, encode_frame
from rewake.model.errors import DamagedFrame, DamagedLog
from rewake.operators.windows.specs import count_window, time_window
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.policies.cost_benefit import CostBenefitPolicy
from rewake.recovery.policies.policy import OpenOnly
from rewake.recovery.policies.targets import TargetsPolicy

STREAM = "abcabbacdaabdcabcdeaabbc"


def checking(records: int, tuples: int = 10**6, **budget: float) -> TargetsPolicy:
    """Targets that only a generous budget bounds, unless a test says otherwise."""
    return TargetsPolicy(
        records=records,
        tuples=tuples,
        **({"interval_ms": 1, "period_ms": 1, "check_us": 1} | budget),
    )


def run(policy, crash_after=None):
    """All results of the stream, one tuple a turn, perhaps with a crash on the way."""
    process = Process(count_window(4), policy())
    position = 0
    while position < len(STREAM):
        process.send(STREAM[position], float(position))
        if position == crash_after:
            process, crash_after = Process(count_window(4), policy(), process.log), None
        position = process.cec.position
    return [row for frame in process.log for row in footprints(frame).results]


# --- II.B: footprints ------------------------------------------------------------------------


def test_an_opened_window_leaves_an_open():
    """II.B: "G-open is the type of checkpoint produced when a window opens"."""
    left = Process(count_window(3)).send("ab")
    assert left.opens == [0, 1]
    assert left.checks == left.closed == left.results == []


def test_a_closed_window_leaves_its_result():
    """II.B: "Standard data-carrying tuples produced when a window closes are abbreviated as R"."""
    process = Process(count_window(2))
    process.send("a")
    left = process.send("a")
    assert left.results == [("a", 1)]
    assert left.closed == [0]


def test_a_turn_that_only_updates_windows_leaves_nothing():
    """III, case (2): "the tuple updates the state of a window"; nothing is emitted."""
    process = Process(count_window(9))
    assert process.send("ab") is not None
    assert process.send("abab") is None
    assert len(process.log) == 1


def test_a_window_that_opens_and_closes_in_one_turn_leaves_only_its_result():
    """II.B: a window costs "two" tuples, "G-open at open and R on close"; a turn needs one."""
    left = Process(count_window(2)).send("aab")
    assert left.results == [("a", 1)]
    assert left.opens == [2]
    assert left.closed == []


def test_a_window_leaves_its_open_before_its_result():
    """II.B: window checkpoints are logged "along with ... output tuples in timestamp order"."""
    process = Process(count_window(3), checking(0))
    for key in "aba":
        process.send(key)
    process.send("a")
    kinds = []
    for frame in process.log:
        left = footprints(frame)
        kinds += ["OPEN"] * (0 in left.opens) + ["CHECK"] * (0 in left.checks)
        kinds += ["RESULT"] * (0 in left.closed)
    assert kinds[0] == "OPEN"
    assert kinds[-1] == "RESULT"
    assert kinds[1:-1] == ["CHECK"] * (len(kinds) - 2)
    assert len(kinds) > 2


def test_n_increases_when_a_window_opens_and_decreases_when_it_closes():
    """II.B: "CEC increases N when a window opens and decreases it when a window closes"."""
    process = Process(count_window(2))
    counts = [process.send(key).n for key in "abcba"]
    assert counts == [1, 2, 3, 2, 1]


def test_a_check_does_not_change_n():
    """III: CHECKs are produced in the background; N counts windows, not checkpoints."""
    process = Process(count_window(9), checking(0))
    assert [process.send(key).n for key in "abaa"] == [1, 2, 2, 2]


def test_a_stateless_operator_is_the_case_of_no_windows():
    """III: stateless operators are "a special case ... with window count 0" (IV.A: size 1)."""
    process = Process(count_window(1))
    assert [process.send(keys).n for keys in ("a", "bc", "aaa")] == [0, 0, 0]
    after = process.crash()
    assert after.cec.position == 6
    assert not after.cec.recovering


# --- II.B: construction ----------------------------------------------------------------------


def test_n_in_the_last_frame_is_the_number_of_windows_to_look_for():
    """II.B: N "is the number of different window footprints we need to look for"."""
    process = Process(count_window(3))
    for key in "abcaad":
        process.send(key)
    assert process.log[-1].open_windows == 3
    checkpoint = process.checkpoint
    assert checkpoint.windows == 3
    assert sorted(checkpoint.openings.ids.tolist()) == [1, 2, 5]


def test_fewer_footprints_than_n_are_refused():
    """II.B: "all open windows must have produced a G-open"; a log without it is not whole."""
    process = Process(count_window(3))
    for key in "abc":
        process.send(key)
    del process.log[0]
    with pytest.raises(DamagedLog, match="3 windows were open, but the log holds footprints of 2"):
        process.crash()


def test_reading_stops_as_soon_as_all_windows_are_found():
    """II.B: N tells "how far to roll back into the log"; what is older is not looked at."""
    process = Process(count_window(2))
    for key in "ababab" + "c":
        process.send(key)
    read = []
    frames = (read.append(frame.sequence) or frame for frame in reversed(process.log))
    ContinuousEventualCheckpointing.recover(operator(count_window(2)), OpenOnly(), frames)
    # Windows a (4) and b (5) opened last but for c (6).
    assert read == [6, 5, 4]


def test_a_window_whose_result_is_met_first_is_skipped():
    """II.B: "its R tuple will be encountered prior to any checkpoints ... it will be excluded"."""
    process = Process(count_window(2), checking(0))
    for key in "abb":
        process.send(key)
    checkpoint = process.checkpoint
    assert [*checkpoint.openings.ids, *checkpoint.snapshots.ids] == [0]


def test_of_several_footprints_of_a_window_the_newest_counts():
    """II.B: recovery finds "the most recent footprints of all windows" (I)."""
    process = Process(count_window(9), checking(0))
    for key in "aaa":
        process.send(key)
    checkpoint = process.checkpoint
    assert checkpoint.openings.ids.size == 0
    assert checkpoint.snapshots.applied.tolist() == [2]


def test_t_is_the_oldest_footprint_time():
    """II.B: "T = min (t_i)"; "request replay of input tuples with timestamps t > T"."""
    process = Process(count_window(9))
    for key in "abac":
        process.send(key)
    checkpoint = process.checkpoint
    times = [*checkpoint.openings.applied, *checkpoint.snapshots.applied]
    assert checkpoint.oldest_time == min(times) == -1
    assert process.crash().cec.position == checkpoint.oldest_time + 1


def test_a_window_ignores_replayed_tuples_that_its_footprint_has_seen():
    """II.B: "window w_i ignores tuples with timestamps t < t_i"; at t_i itself it was seen, too."""
    # One CHECK a turn keeps a's CHECK apart from b's OPEN: both see some tuples twice.
    process = Process(count_window(4), checking(0, period_ms=10**6, check_us=1000))
    process.send("aa")
    process.send("b")
    assert process.checkpoint.snapshots.ids.tolist() == [0]
    after = process.crash()
    assert after.cec.position <= 2
    after.send("aab"[after.cec.position :])
    left = after.send("aa")
    assert left.results == [("a", 0 + 1 + 3 + 4)]


def test_until_tc_nothing_is_emitted_and_closed_windows_are_not_reopened():
    """II.B: the operator "will unavoidably see tuples that it has already seen in the past"."""
    process = Process(count_window(2))
    process.send("ab")
    process.send("bbc")
    before = len(process.log)
    after = process.crash()
    assert after.cec.position == 0
    assert after.send("abbbc") is None
    assert len(process.log) == before
    assert after.cec.operator.open_parts == 3


def test_recovery_reaches_a_state_the_operator_went_through():
    """II.B: W "can be used to bring the operator to a consistent state" at t_c."""
    process = Process(count_window(5), checking(3))
    for key in "abcabca":
        process.send(key)
    after = process.crash()
    after.send("abcabca"[after.cec.position :])
    assert after.cec.operator.open_parts == process.cec.operator.open_parts == 3
    assert after.send("aa").results == [("a", 0 + 3 + 6 + 7 + 8)]


def test_a_torn_frame_is_discarded_as_a_whole():
    """II.B: "using a fingerprint to detect partial I/O errors and in that case discard"."""
    turn = Process(count_window(2)).turn("aab")
    whole = encode_frame(turn.record, log_id=1, epoch=1, sequence=0, position=0, durable=0)
    for size in range(len(whole)):
        with pytest.raises(DamagedFrame):
            decode_frame(whole[:size])
        zeroed = whole[:size] + bytes(len(whole) - size)
        if zeroed != whole:
            with pytest.raises(DamagedFrame):
                decode_frame(zeroed)


# --- II.B: the extent --------------------------------------------------------------------------


def test_the_extent_counts_records_of_any_type_back_to_t():
    """II.B: "the set of tuples (of any type ...) ... to reach the tuple with timestamp T"."""
    process = Process(count_window(2))
    for key in "abcbdd":
        process.send(key)
    # OPEN a, OPEN b, OPEN c, RESULT b, OPEN d, RESULT d: recovery goes back to a.
    assert process.cec.extent().records == 6
    assert process.checkpoint.extent_records == 6
    process.send("a")
    # Without a, the oldest is c: OPEN c, RESULT b, OPEN d, RESULT d, RESULT a.
    assert process.cec.extent().records == 5


def test_u_counts_the_input_tuples_after_t():
    """III.A: "the number of tuples u we need to replay where a crash to occur"."""
    process = Process(count_window(9))
    for key in "abaa":
        process.send(key)
    # Two tuples that only updated a window came after the last record of the log.
    assert process.cec.extent().tuples == process.checkpoint.tuples_to_replay + 2 == 4
    assert process.crash().cec.position == 0


def test_the_smallest_possible_extent_is_one_record_per_window():
    """IV.B: "This is the smallest possible extent for that number of windows"."""
    process = Process(count_window(100), checking(0))
    for _ in range(5):
        process.send("abcd")
    assert process.cec.extent().records == process.cec.extent().open_windows == 4


def test_a_slow_window_makes_the_extent_grow_until_it_is_checkpointed():
    """II.B: "The existence of slow windows ... is a key factor leading to a growing extent"."""
    without, with_checks = Process(count_window(2)), Process(count_window(2), checking(6))
    for process in (without, with_checks):
        process.send("s")
        for _ in range(20):
            process.send("f")
    assert without.cec.extent().records == 21
    assert with_checks.cec.extent().records <= 6


# --- III: policies -----------------------------------------------------------------------------


def test_a_q_above_its_target_leads_to_checks_from_the_older_end():
    """III.A: "produce a G-check if q > Q ... starting from the older end of the extent"."""
    process = Process(count_window(9), checking(3))
    assert [process.send(key).checks for key in "abc"] == [[], [], []]
    # q = 4 > 3: a is checkpointed, which adds a record, and then b.
    assert process.send("d").checks == [0, 1, 2, 3]


def test_a_u_above_its_target_leads_to_checks_from_the_older_end():
    """III.A: "or u > U": the windows whose footprints are more than U tuples old."""
    process = Process(count_window(9), checking(10**6, tuples=2))
    assert process.send("a").checks == []
    assert process.send("b").checks == []
    assert process.send("b").checks == [0]


def test_targets_that_are_met_cost_nothing():
    """IV.B: for large Q "the extent ... nearly always stays below target": no CHECKs."""
    process = Process(count_window(9), checking(8, tuples=100))
    left = [process.send(key) for key in "abcdabcd"]
    assert [each.checks for each in left if each] == [[]] * 4


def test_a_q_below_n_is_unattainable_and_bounded_by_the_budget():
    """IV.B: "an unattainable target, resulting in unnecessary overhead"; CI bounds it (III)."""
    process = Process(count_window(99), checking(1, period_ms=10, check_us=500))
    process.send("abcdefgh", 0.0)
    checks = [process.send("a", float(now)) for now in range(1, 41)]
    # 1 ms at 0.5 ms each: two CHECKs in each of the four periods that follow.
    assert sum(len(each.checks) for each in checks if each) == 2 * 4
    assert process.cec.extent().records > 1


def test_no_checks_are_taken_outside_the_checkpoint_interval():
    """III: "we limit checkpointing only to specific time intervals" (CI out of every CP)."""
    process = Process(count_window(99), checking(0, period_ms=100, check_us=1000))
    assert process.send("abc", 0.0).checks == [0]
    assert process.send("abc", 50.0) is None
    assert process.send("abc", 99.9) is None
    assert len(process.send("abc", 100.0).checks) == 1


def test_checks_are_taken_when_their_benefit_outweighs_their_cost():
    """III.A: "only perform a G-check when the benefits outweigh the costs"."""
    dear = CostBenefitPolicy(load_us=1, replay_us=1, check_us=1000, patience=1, period_ms=0)
    cheap = CostBenefitPolicy(load_us=1, replay_us=1, check_us=0.1, patience=1, period_ms=0)
    taken = []
    for policy in (dear, cheap):
        process = Process(count_window(99), policy)
        left = [process.send(key) for key in "a" + "b" * 20]
        taken.append(sum(len(each.checks) for each in left if each))
    assert taken[0] == 0
    assert taken[1] > 0


@pytest.mark.parametrize("crash_after", [None, 0, 5, 11, 17, 22])
def test_the_choice_of_parameters_does_not_affect_correctness(crash_after):
    """III: "the choice of these parameters does not affect correctness"."""
    expected = run(OpenOnly)
    assert len(expected) == 4
    for records in (0, 2, 10):
        for tuples in (0, 3, 100):
            for period in (1, 7):
                found = run(
                    lambda q=records, u=tuples, cp=period: checking(q, u, period_ms=cp), crash_after
                )
                assert found == expected


def test_only_gap_tuples_leave_nothing_and_are_not_acknowledged():
    """II.B: t_c is the time of "the last tuple that ... affected its state"; others come again."""
    process = Process(time_window(1, every=100))
    process.send("a")
    assert process.send("bcd").closed == [0]
    acknowledged = process.cec.acknowledged
    assert acknowledged == 3
    assert process.send("efg") is None
    assert process.cec.acknowledged == acknowledged
    assert process.crash().cec.position == acknowledged + 1

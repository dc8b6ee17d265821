"""Epochs, peers and the end of a query."""

import pytest

from rewake.graph.plan import NodePlan, Plan
from rewake.log.lineage import LogRecord
from rewake.model.errors import UsageError
from rewake.node.commands import EndQuery, HangUp, KillAttempt, Persist, Tell
from rewake.node.coordinator import Coordinator
from rewake.node.failure_detector import FailureDetector
from rewake.node.messages import (
    Failed,
    Finished,
    Heartbeat,
    PeerMoved,
    Refused,
    Register,
    Stop,
    Superseded,
    Welcome,
)


def plan(*names: str, fingerprint: str = "f") -> Plan:
    nodes = tuple(
        NodePlan(name, name, 0, 1, (), (), None, None, logs=False, logs_because="")
        for name in names
    )
    return Plan("query", nodes, {}, fingerprint)


def register(coordinator: Coordinator, connection: int, node: str, now_ms: float = 0.0):
    commands = coordinator.registered(connection, Register(node, ("127.0.0.1", 1000)), now_ms)
    persist = next(each for each in commands if isinstance(each, Persist))
    coordinator.check_invariants()
    return commands + coordinator.persisted(persist.version)


def told(commands, connection: int):
    return [
        each.message
        for each in commands
        if isinstance(each, Tell) and each.connection == connection
    ]


def test_an_epoch_is_durable_before_anyone_hears_of_it():
    """The welcome waits for the state to be persisted."""
    coordinator = Coordinator(plan("a"))
    commands = coordinator.registered(1, Register("a", ("127.0.0.1", 1)), 0.0)
    assert [type(each) for each in commands] == [Persist]
    assert commands[0].state["epochs"] == {"a": 1}
    (welcome,) = told(coordinator.persisted(commands[0].version), 1)
    assert isinstance(welcome, Welcome)
    assert (welcome.node, welcome.epoch) == ("a", 1)


def test_a_later_attempt_supersedes_the_earlier_one():
    """Of two attempts of a node, the earlier is told to leave and the others learn of the later."""
    coordinator = Coordinator(plan("a", "b"))
    register(coordinator, 1, "a")
    register(coordinator, 2, "b")
    commands = register(coordinator, 3, "a")
    assert told(commands, 1) == [Superseded(2)]
    assert HangUp(1) in commands
    assert told(commands, 3)[0].epoch == 2
    moved = told(commands, 2)
    assert isinstance(moved[0], PeerMoved)
    assert moved[0].peer.epoch == 2
    coordinator.check_invariants()


def test_epochs_survive_the_driver():
    """A new coordinator goes on where the old one's state ended."""
    first = Coordinator(plan("a"))
    register(first, 1, "a")
    second = Coordinator(plan("a"), first.state())
    assert told(register(second, 1, "a"), 1)[0].epoch == 2


def test_the_state_of_another_query_is_refused():
    """A folder belongs to the query that began in it."""
    state = Coordinator(plan("a", fingerprint="one")).state()
    with pytest.raises(UsageError, match="another query"):
        Coordinator(plan("a", fingerprint="two"), state)


def test_an_unknown_node_is_refused():
    """Nobody can run what the plan does not have."""
    coordinator = Coordinator(plan("a"))
    commands = coordinator.registered(1, Register("z", ("127.0.0.1", 1)), 0.0)
    assert isinstance(told(commands, 1)[0], Refused)


def test_a_lost_connection_is_a_death_at_once():
    """The others are told to wait for the next attempt."""
    coordinator = Coordinator(plan("a", "b"))
    register(coordinator, 1, "a")
    register(coordinator, 2, "b")
    assert told(coordinator.disconnected(1), 2) == [PeerMoved("a", None)]


def at_a_steady_pace(detector: FailureDetector, until_ms: int = 20_000) -> None:
    """Have one node heard every 100 ms, until that pace is believed."""
    detector.started(99, "steady", 0.0)
    for now_ms in range(0, until_ms, 100):
        detector.heard(99, float(now_ms))
        detector.silent(float(now_ms))
    detector.forget(99)


def test_three_missed_heartbeats_are_a_death():
    """A silent process is ended, so that another can take its place."""
    detector = FailureDetector(100.0, 3)
    at_a_steady_pace(detector)
    coordinator = Coordinator(plan("a"), detector=detector)
    register(coordinator, 1, "a", now_ms=20_000.0)
    coordinator.heartbeat(1, Heartbeat("a", 1), 20_000.0)
    for now_ms in range(20_000, 20_301, 50):
        assert coordinator.tick(float(now_ms)) == []
    commands = coordinator.tick(20_350.0)
    assert [type(each) for each in commands] == [KillAttempt, HangUp]


def test_heartbeats_are_missed_at_the_pace_at_which_they_come():
    """On a busy machine everything comes late; that is no death."""
    detector = FailureDetector(100.0, 3)
    at_a_steady_pace(detector)
    assert 299.0 < detector.patience_ms("a") < 301.0
    detector.started(1, "a", 20_000.0)
    detector.heard(1, 20_000.0)
    detector.heard(1, 20_900.0)
    assert detector.patience_ms("a") == 2700.0


def test_an_attempt_that_loads_its_state_is_given_time():
    """Before its first heartbeat a node is busy, not dead."""
    coordinator = Coordinator(plan("a"), detector=FailureDetector(100.0, 3))
    register(coordinator, 1, "a", now_ms=0.0)
    assert [coordinator.tick(float(now_ms)) for now_ms in range(0, 5000, 100)] == [[]] * 50


def test_who_was_suspected_is_given_longer():
    """On a machine that is too slow for the detector, a node still gets somewhere."""
    detector = FailureDetector(100.0, 3)
    first = detector.patience_ms("a")
    detector.silent(0.0)
    for count in range(2):
        assert detector.patience_ms("a") == first * 2**count
        detector.started(count, "a", 0.0)
        detector.heard(count, 0.0)
        suspected = next(now for now in range(0, 9000, 100) if detector.silent(float(now)))
        assert suspected > first * 2**count
        detector.forget(count)
        detector.silent(0.0)


def test_a_coordinator_that_slept_blames_nobody():
    """Silence counts only while somebody listened."""
    coordinator = Coordinator(plan("a"), detector=FailureDetector(100.0, 3))
    register(coordinator, 1, "a", now_ms=0.0)
    coordinator.tick(0.0)
    assert coordinator.tick(5000.0) == []
    coordinator.heartbeat(1, Heartbeat("a", 1), 5001.0)
    assert coordinator.tick(5200.0) == []


def test_the_query_ends_when_every_node_has_finished():
    """And not before; a restarted node must finish again."""
    coordinator = Coordinator(plan("a", "b"))
    register(coordinator, 1, "a")
    register(coordinator, 2, "b")
    assert coordinator.finished(1, Finished("a", 1)) == []
    register(coordinator, 3, "a")
    assert coordinator.finished(2, Finished("b", 1)) == []
    assert coordinator.finished(1, Finished("a", 1)) == []  # superseded: its word counts no more
    commands = coordinator.finished(3, Finished("a", 2))
    assert EndQuery(None) in commands
    assert isinstance(told(commands, 2)[0], Stop)


def test_a_failure_that_no_restart_cures_ends_the_query():
    """With the node's own words."""
    coordinator = Coordinator(plan("a"))
    register(coordinator, 1, "a")
    commands = coordinator.failed(1, Failed("a", 1, "no such column"))
    assert EndQuery("node 'a': no such column") in commands


# --- what is known of logs -----------------------------------------------------------------------


def test_a_log_that_was_opened_is_remembered_at_once_and_told_to_the_next_attempt():
    """Whoever comes next refuses a log that is older than that."""
    coordinator = Coordinator(plan("a"))
    register(coordinator, 1, "a")
    (persist,) = coordinator.heartbeat(1, Heartbeat("a", 1, {}, LogRecord(7, 1, 0)), 1.0)
    assert persist.state["logs"] == {"a": [7, 1, 0]}
    assert coordinator.heartbeat(1, Heartbeat("a", 1, {}, LogRecord(7, 1, 20)), 2.0) == []
    (welcome,) = told(register(coordinator, 2, "a"), 2)
    assert welcome.log == LogRecord(7, 1, 20)


def test_how_far_a_log_is_durable_is_remembered_now_and_then_and_at_the_end():
    """Not with every heartbeat: that would be a sync several times a second."""
    coordinator = Coordinator(plan("a"), detector=FailureDetector())
    register(coordinator, 1, "a")
    coordinator.heartbeat(1, Heartbeat("a", 1, {}, LogRecord(7, 1, 0)), 0.0)
    for now_ms in range(0, 5_000, 100):
        beat = Heartbeat("a", 1, {}, LogRecord(7, 1, 1 + now_ms))
        assert coordinator.heartbeat(1, beat, float(now_ms)) == []
        assert coordinator.tick(float(now_ms)) == []
    (persist,) = coordinator.tick(5_000.0)
    assert persist.state["logs"] == {"a": [7, 1, 4_901]}
    assert coordinator.tick(5_050.0) == [], "nothing is new"
    coordinator.heartbeat(1, Heartbeat("a", 1, {}, LogRecord(7, 1, 6_000)), 5_060.0)
    persist = next(each for each in coordinator.stop("enough") if isinstance(each, Persist))
    assert persist.state["logs"] == {"a": [7, 1, 6_000]}
    (persist,) = coordinator.heartbeat(1, Heartbeat("a", 1, {}, LogRecord(7, 1, 6_001)), 5_070.0)
    assert Coordinator(plan("a"), persist.state).nodes["a"].log == LogRecord(7, 1, 6_001)


def test_a_node_whose_parts_do_not_fit_ends_the_query_as_that():
    """So that whoever waits for its end gets an error of its own kind."""
    coordinator = Coordinator(plan("a"))
    register(coordinator, 1, "a")
    commands = coordinator.failed(1, Failed("a", 1, "the log is older", misfit=True))
    assert commands[-1] == EndQuery("node 'a': the log is older", misfit=True)

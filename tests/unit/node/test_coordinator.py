"""Epochs, peers and the end of a query."""

import pytest

from rewake.graph.plan.plan import NodePlan, Plan
from rewake.log.files.lineage import LogRecord
from rewake.model.errors import UsageError
from rewake.node.commands import EndQuery, HangUp, KillServer, Persist, Tell
from rewake.node.coordinator.coordinator import Coordinator
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
from rewake.recovery.approach import Kept


def plan(*names: str, fingerprint: str = "f") -> Plan:
    nodes = tuple(
        NodePlan(name, name, 0, 1, (), (), None, None, Kept.NOWHERE, "") for name in names
    )
    return Plan("query", nodes, {}, fingerprint)


def register(coordinator: Coordinator, connection: int, node: str, now_ms: float = 0.0):
    commands = coordinator.registered(connection, Register(node, ("127.0.0.1", 1000)), now_ms)
    persist = next(each for each in commands if isinstance(each, Persist))
    coordinator.check_invariants()
    return commands + coordinator.persisted(persist.version)


def told(commands, connection: int):
    return [each.message for each in commands if isinstance(each, Tell) and each.link == connection]


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
    assert told(commands, 1) == [Superseded(2, "a")]
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


def test_silence_is_a_death():
    """The process is ended, so that its place is free for the next attempt."""
    coordinator = Coordinator(plan("a"))
    register(coordinator, 1, "a", now_ms=0.0)
    coordinator.heartbeat(1, Heartbeat("a", 1), 0.0)
    commands = [each for now in range(0, 5_000, 50) for each in coordinator.tick(float(now))]
    assert commands == [KillServer(("a",), 0, 1), HangUp(1)]
    assert coordinator.nodes["a"].replaced == {"silent": 1}


def test_who_waits_for_its_epoch_is_not_silent():
    """While there is no room to keep the state, it is the coordinator who is late."""
    coordinator = Coordinator(plan("a"))
    coordinator.registered(1, Register("a", ("127.0.0.1", 1000)), 0.0)
    coordinator.stalled("no room")
    assert not any(coordinator.tick(float(now)) for now in range(0, 300_000, 50))
    assert coordinator.nodes["a"].progress == {"stalled": True, "trouble": "no room"}


def test_a_node_that_nobody_starts_again_ends_the_query():
    """Whoever starts nodes may be dead: it is not waited for, and the error names the node."""
    coordinator = Coordinator(plan("a", "b"), missing_after_ms=2_000.0)
    register(coordinator, 1, "a")
    register(coordinator, 2, "b")
    coordinator.disconnected(2)
    commands = []
    for now in range(0, 3_000, 50):
        coordinator.heartbeat(1, Heartbeat("a", 1), float(now))
        commands += coordinator.tick(float(now))
        assert not commands or now > 2_000
    assert isinstance(told(commands, 1)[0], Stop)
    (end,) = [each for each in commands if isinstance(each, EndQuery)]
    assert "node 'b' is missing: for 2 s no process or task has come to run it" in end.error


def test_a_node_that_comes_back_is_not_missing_any_more():
    """Time without it counts from its last end."""
    coordinator = Coordinator(plan("a"), missing_after_ms=2_000.0)
    for life in range(5):
        first = life * 2_000
        assert not any(coordinator.tick(float(now)) for now in range(first, first + 1_500, 50))
        register(coordinator, life, "a", float(first + 1_500))
        coordinator.disconnected(life)


def deaths(coordinator: Coordinator, lives: int, progress: dict, words: str = "") -> list:
    """So many lives of a second each; what the coordinator commands when the last one ends."""
    commands = []
    for life in range(lives):
        now = life * 1_000.0
        register(coordinator, life, "a", now)
        heartbeat = Heartbeat("a", life + 1, {name: at(life) for name, at in progress.items()})
        coordinator.heartbeat(life, heartbeat, now + 900.0)
        if words:
            coordinator.failed(life, Failed("a", life + 1, words, fatal=False))
        commands = coordinator.disconnected(life)
    return [each for each in commands if isinstance(each, EndQuery)]


def test_a_node_that_dies_for_long_and_never_gets_further_ends_the_query():
    """With what it last said; without a word it is told where to look."""
    same = {"input_position": lambda _life: 7}
    (end,) = deaths(Coordinator(plan("a"), missing_after_ms=30_000.0), 31, same, "no route")
    assert end.error == (
        "node 'a' was started 31 times in a row and never got any further; it last said: no route"
    )
    (end,) = deaths(Coordinator(plan("a"), missing_after_ms=30_000.0), 31, same)
    assert "died without a word; what its process printed says why" in end.error


def test_a_node_that_gets_further_may_die_for_ever():
    """Deaths count only in vain; and a storm of them that is over soon does not count."""
    coordinator = Coordinator(plan("a"), missing_after_ms=30_000.0)
    assert not deaths(coordinator, 500, {"input_position": lambda life: life})
    assert coordinator.nodes["a"].replaced == {"died": 500}
    assert not deaths(Coordinator(plan("a")), 100, {"input_position": lambda _life: 7})


def test_replacements_are_counted_by_cause():
    """Died without a word, failed with one, superseded by another attempt."""
    coordinator = Coordinator(plan("a"))
    register(coordinator, 1, "a")
    register(coordinator, 2, "a")
    coordinator.disconnected(2)
    register(coordinator, 3, "a")
    coordinator.failed(3, Failed("a", 3, "no room", fatal=False))
    coordinator.disconnected(3)
    assert coordinator.nodes["a"].replaced == {"superseded": 1, "died": 1, "failed": 1}


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
    assert persist.state["logs"] == {"a": [7, 1, 0, 0]}
    assert coordinator.heartbeat(1, Heartbeat("a", 1, {}, LogRecord(7, 1, 20)), 2.0) == []
    (welcome,) = told(register(coordinator, 2, "a"), 2)
    assert welcome.log == LogRecord(7, 1, 20)


def test_how_far_a_log_is_durable_is_remembered_now_and_then_and_at_the_end():
    """Not with every heartbeat: that would be a sync several times a second."""
    coordinator = Coordinator(plan("a"))
    register(coordinator, 1, "a")
    coordinator.heartbeat(1, Heartbeat("a", 1, {}, LogRecord(7, 1, 0)), 0.0)
    for now_ms in range(0, 5_000, 100):
        beat = Heartbeat("a", 1, {}, LogRecord(7, 1, 1 + now_ms))
        assert coordinator.heartbeat(1, beat, float(now_ms)) == []
        assert coordinator.tick(float(now_ms)) == []
    (persist,) = coordinator.tick(5_000.0)
    assert persist.state["logs"] == {"a": [7, 1, 4_901, 0]}
    assert coordinator.tick(5_050.0) == [], "nothing is new"
    coordinator.heartbeat(1, Heartbeat("a", 1, {}, LogRecord(7, 1, 6_000)), 5_060.0)
    persist = next(each for each in coordinator.stop("enough") if isinstance(each, Persist))
    assert persist.state["logs"] == {"a": [7, 1, 6_000, 0]}
    (persist,) = coordinator.heartbeat(1, Heartbeat("a", 1, {}, LogRecord(7, 1, 6_001)), 5_070.0)
    assert Coordinator(plan("a"), persist.state).nodes["a"].log == LogRecord(7, 1, 6_001)


def test_a_node_whose_parts_do_not_fit_ends_the_query_as_that():
    """So that whoever waits for its end gets an error of its own kind."""
    coordinator = Coordinator(plan("a"))
    register(coordinator, 1, "a")
    commands = coordinator.failed(1, Failed("a", 1, "the log is older", misfit=True))
    assert commands[-1] == EndQuery("node 'a': the log is older", misfit=True)


# --- several nodes on one server -----------------------------------------------------------------


def serve(coordinator: Coordinator, connection: int, *nodes: str, now_ms: float = 0.0):
    """A server registers its nodes, and each is welcomed."""
    commands = []
    for node in nodes:
        message = Register(node, ("127.0.0.1", connection), 70 + connection, "", "server-0")
        commands += coordinator.registered(connection, message, now_ms)
    persists = [each for each in commands if isinstance(each, Persist)]
    coordinator.check_invariants()
    return commands + coordinator.persisted(persists[-1].version)


def test_the_nodes_of_a_server_are_welcomed_one_by_one_and_hear_of_each_other():
    """The first to be welcomed learns where the second is by the same connection."""
    coordinator = Coordinator(plan("a", "b"))
    messages = told(serve(coordinator, 1, "a", "b"), 1)
    assert [(type(each), each.node) for each in messages] == [
        (Welcome, "a"), (Welcome, "b"), (PeerMoved, "b"),
    ]  # fmt: skip
    assert coordinator.running == ["a", "b"]
    assert [coordinator.server_of(each) for each in "ab"] == ["server-0", "server-0"]


def test_a_server_that_is_gone_takes_all_its_nodes_along():
    """Each is lost, and each of the others is told of each, once."""
    coordinator = Coordinator(plan("a", "b", "c"))
    serve(coordinator, 1, "a", "b")
    register(coordinator, 2, "c")
    commands = coordinator.disconnected(1)
    assert told(commands, 2) == [PeerMoved("a", None), PeerMoved("b", None)]
    assert told(commands, 1) == []
    assert coordinator.running == ["c"]
    assert [coordinator.nodes[each].replaced for each in "ab"] == [{"died": 1}] * 2


def test_a_server_of_which_one_node_is_superseded_has_to_leave():
    """It is told so once, and none of its nodes counts as running any more."""
    coordinator = Coordinator(plan("a", "b", "c"))
    serve(coordinator, 1, "a", "b")
    register(coordinator, 2, "c")
    commands = register(coordinator, 3, "b")
    assert told(commands, 1) == [Superseded(2, "b")]
    assert commands.count(HangUp(1)) == 1
    assert PeerMoved("a", None) in told(commands, 2)
    assert sorted(coordinator.running) == ["b", "c"]
    assert coordinator.disconnected(1) == [], "that is over already"


def test_a_server_that_comes_again_supersedes_itself_only_once():
    """Its first node makes the earlier life leave; the others find nobody."""
    coordinator = Coordinator(plan("a", "b"))
    serve(coordinator, 1, "a", "b")
    commands = serve(coordinator, 2, "a", "b")
    assert told(commands, 1) == [Superseded(2, "a")]
    assert coordinator.running == ["a", "b"]
    assert [coordinator.nodes[each].epoch for each in "ab"] == [2, 2]


def test_a_silent_server_is_killed_once_for_all_its_nodes():
    """Its process is one."""
    coordinator = Coordinator(plan("a", "b"))
    serve(coordinator, 1, "a", "b")
    for node in "ab":
        coordinator.heartbeat(1, Heartbeat(node, 1, {"recovering": False}), 0.0)
    commands = [each for now in range(0, 10_000, 50) for each in coordinator.tick(float(now))]
    kills = [each for each in commands if isinstance(each, KillServer)]
    assert kills == [KillServer(("a", "b"), 71, 1)]
    assert commands.count(HangUp(1)) == 1


def test_a_server_is_starting_as_long_as_one_of_its_nodes_is():
    """While one loads its state nobody else there gets a turn, and that is no silence."""
    coordinator = Coordinator(plan("a", "b"))
    serve(coordinator, 1, "a", "b")
    coordinator.heartbeat(1, Heartbeat("a", 1, {"recovering": False}), 0.0)
    assert [each for now in range(0, 20_000, 50) for each in coordinator.tick(float(now))] == []
    coordinator.heartbeat(1, Heartbeat("b", 1, {"recovering": False}), 20_000.0)
    late = [each for now in range(20_000, 30_000, 50) for each in coordinator.tick(float(now))]
    assert any(isinstance(each, KillServer) for each in late)


def test_a_server_is_told_once_that_the_query_is_over():
    """It is one process, which leaves with all its nodes."""
    coordinator = Coordinator(plan("a", "b"))
    serve(coordinator, 1, "a", "b")
    coordinator.finished(1, Finished("a", 1))
    commands = coordinator.finished(1, Finished("b", 1))
    assert [type(each) for each in told(commands, 1)] == [Stop]
    assert EndQuery() in commands


def test_who_dies_in_vain_is_named_and_not_those_who_went_with_it():
    """All of them ended as often; one has said why."""
    coordinator = Coordinator(plan("a", "b"))
    ends = []
    for life in range(1, 30):
        serve(coordinator, life, "a", "b", now_ms=life * 10_000.0)
        for node in "ab":
            coordinator.heartbeat(life, Heartbeat(node, life, {}), life * 10_000.0 + 9_000.0)
        coordinator.failed(life, Failed("b", life, "it is b", fatal=False))
        ends += [each for each in coordinator.disconnected(life) if isinstance(each, EndQuery)]
        if ends:
            break
    assert ends[0].error is not None
    assert ends[0].error.startswith("node 'b' was started 20 times in a row")
    assert "it is b" in ends[0].error

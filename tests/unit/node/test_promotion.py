"""Places at the coordinator: who runs a node, who stands by, who may be promoted."""

import pytest

from rewake.graph.plan.plan import NodePlan, Plan
from rewake.graph.plan.servers import Seat, assign
from rewake.model.errors import UsageError
from rewake.node.commands import EndQuery, HangUp, KillServer, Persist, Tell
from rewake.node.coordinator.coordinator import Coordinator
from rewake.node.messages import (
    Finished,
    Heartbeat,
    InSync,
    PeerMoved,
    PlaceLost,
    Refused,
    Register,
    Stop,
    Superseded,
    Welcome,
)
from rewake.recovery.approach import Kept


def node(name: str, places: int = 1) -> NodePlan:
    kept = Kept.IN_QUEUE if places > 1 else Kept.NOWHERE
    return NodePlan(name, name, 0, 1, (), (), None, None, kept, "", places=places)


PLAN = Plan("query", (node("a", 2), node("b")), {}, "f")


class Driver:
    """A coordinator whose state is durable at once; what it tells whom, by connection."""

    def __init__(self, state=None) -> None:
        self.coordinator = Coordinator(PLAN, state)
        self.told: dict[int, list[object]] = {}
        self.ended: list[str | None] = []
        self.killed: list[int] = []

    def do(self, commands) -> None:
        for command in commands:
            match command:
                case Tell(connection, message):
                    self.told.setdefault(connection, []).append(message)
                case Persist(version):
                    self.do(self.coordinator.persisted(version))
                case EndQuery(error):
                    self.ended.append(error)
                case KillServer(_, _, connection):
                    self.killed.append(connection)
                case _:
                    assert isinstance(command, HangUp)
        self.coordinator.check_invariants()

    def register(self, connection: int, name: str = "a", place: int = 0) -> None:
        address = ("127.0.0.1", 1000 + connection)
        self.do(self.coordinator.registered(connection, Register(name, address, place=place), 0.0))

    def vouch(self, connection: int, place: int, standby: int, *, epoch: int = 1) -> None:
        self.do(self.coordinator.in_sync(connection, InSync("a", epoch, place, standby)))

    def beat(self, since: int, until: int, epochs: dict[int, int]) -> None:
        """Heartbeats of node a by these connections, with these epochs, and always of node b."""
        for now in range(since, until, 100):
            for connection, epoch in epochs.items():
                self.do(self.coordinator.heartbeat(connection, Heartbeat("a", epoch), now))
            self.do(self.coordinator.heartbeat(3, Heartbeat("b", 1), now))
            self.do(self.coordinator.tick(now))

    def lose(self, connection: int) -> None:
        self.do(self.coordinator.disconnected(connection))

    def welcomes(self, connection: int) -> list[tuple[int, bool]]:
        told = self.told.get(connection, [])
        return [(each.epoch, each.standby) for each in told if isinstance(each, Welcome)]


@pytest.fixture
def driver() -> Driver:
    """Node a runs on 1 and is stood by on 2; node b runs on 3."""
    driver = Driver()
    driver.register(1)
    driver.register(2, place=1)
    driver.register(3, "b")
    return driver


def test_whoever_comes_first_runs_the_node_and_the_next_stands_by(driver: Driver) -> None:
    """Each attempt has an epoch of its own; peers are where nodes run."""
    assert driver.welcomes(1) == [(1, False)]
    assert driver.welcomes(2) == [(2, True)]
    (welcome,) = (each for each in driver.told[3] if isinstance(each, Welcome))
    assert welcome.peers["a"].epoch == 1
    assert driver.coordinator.running == ["a", "b"]


def test_who_is_in_sync_is_promoted_at_once_with_an_epoch_of_its_own(driver: Driver) -> None:
    """The same connection is welcomed again; the others learn where the node runs now."""
    driver.vouch(1, 1, standby=2)
    driver.lose(1)
    assert driver.welcomes(2) == [(2, True), (3, False)]
    moved = [each.peer for each in driver.told[3] if isinstance(each, PeerMoved)]
    assert moved[-2] is None
    assert (moved[-1].address, moved[-1].epoch) == (("127.0.0.1", 1002), 3)
    driver.register(4)
    assert driver.welcomes(4) == [(4, True)]
    assert not driver.ended


def test_a_promotion_is_durable_before_anyone_hears_of_it(driver: Driver) -> None:
    """As every epoch."""
    driver.vouch(1, 1, standby=2)
    commands = driver.coordinator.disconnected(1)
    (persist,) = (each for each in commands if isinstance(each, Persist))
    assert persist.state["epochs"]["a"] == 3
    told = [each.message for each in commands if isinstance(each, Tell)]
    assert not any(isinstance(each, Welcome) for each in told)
    assert "a" not in driver.coordinator.peers()


@pytest.mark.parametrize("why", ["nobody vouched", "for another", "an old epoch", "gone again"])
def test_no_place_is_promoted_that_was_not_in_sync(driver: Driver, why: str) -> None:
    """The query ends in words: an empty place would lose what the node was, silently."""
    if why == "for another":
        driver.vouch(1, 1, standby=9)
    if why == "an old epoch":
        driver.vouch(1, 1, standby=2, epoch=0)
    if why == "gone again":
        driver.vouch(1, 1, standby=2)
        driver.lose(2)
        driver.register(5, place=1)
    driver.lose(1)
    (error,) = driver.ended
    assert "node 'a' is lost" in error
    assert "no place that was in sync is left" in error
    assert driver.welcomes(2) == [(2, True)]


def test_where_the_node_runs_it_is_told_when_a_standby_is_lost(driver: Driver) -> None:
    """It was dropped before: it will never be promoted, so nothing need wait for it."""
    driver.vouch(1, 1, standby=2)
    driver.lose(2)
    assert driver.told[1][-1] == PlaceLost("a", 1, 2)
    assert driver.coordinator.standbys_of("a") == {}
    assert driver.coordinator.nodes["a"].in_sync == set()


def test_a_second_attempt_at_a_place_supersedes_the_first(driver: Driver) -> None:
    """Of the other place nothing changes; where the node ran, the other one goes on."""
    driver.vouch(1, 1, standby=2)
    driver.register(4, place=1)
    assert Superseded(3, "a") in driver.told[2]
    assert PlaceLost("a", 1, 2) in driver.told[1]
    assert driver.welcomes(4) == [(3, True)]
    driver.vouch(1, 1, standby=3)
    driver.register(5, place=0)
    assert driver.welcomes(4)[-1] == (4, False)
    assert driver.welcomes(5) == [(5, True)]


def test_what_a_standby_says_is_not_taken_for_the_node(driver: Driver) -> None:
    """Its heartbeats are signs of life and no figures, and it finishes nothing."""
    driver.do(driver.coordinator.heartbeat(1, Heartbeat("a", 1, {"input_position": 7}), 1.0))
    driver.do(driver.coordinator.heartbeat(2, Heartbeat("a", 2, {"standby": True}), 1.0))
    driver.do(driver.coordinator.finished(2, Finished("a", 2)))
    assert driver.coordinator.nodes["a"].progress == {"input_position": 7}
    assert not driver.coordinator.nodes["a"].finished


def test_a_driver_that_begins_again_does_not_begin_such_a_node_anew() -> None:
    """All places end with the driver, and with them what the node was."""
    first = Driver()
    first.register(1)
    again = Driver(first.coordinator.state())
    again.register(1)
    assert "node 'a' is lost" in again.ended[0]


def test_a_place_that_a_node_does_not_have_is_refused(driver: Driver) -> None:
    """Whoever starts processes and the plan disagree."""
    driver.register(7, place=2)
    assert isinstance(driver.told[7][0], Refused)


def test_the_places_of_a_node_are_on_servers_of_their_own() -> None:
    """They would end together otherwise; with too few servers that is refused."""
    assert [each.name for each in assign(PLAN.nodes, None)] == ["a", "a/1", "b"]
    for server in assign(PLAN.nodes, 2):
        assert len({seat.node for seat in server.seats}) == len(server.seats)
    assert Seat("a", 1) in {seat for each in assign(PLAN.nodes, 2) for seat in each.seats}
    with pytest.raises(UsageError, match="two places of node 'a' would be on one server"):
        assign(PLAN.nodes, 1)


def test_what_is_said_of_a_standby_that_left_after_the_end_changes_nothing(driver: Driver) -> None:
    """All leave when they are told to stop, in any order; the query has ended well and stays so."""
    driver.do(driver.coordinator.stop("enough"))
    driver.lose(2)
    driver.vouch(1, 1, standby=2)
    driver.lose(1)
    driver.lose(3)
    assert driver.ended == [None]
    assert driver.coordinator.standbys_of("a") == {}


def test_who_comes_where_it_ends_the_query_is_told_to_stop(driver: Driver) -> None:
    """It supersedes where the node ran, nobody is in sync, and there is nothing to run any more."""
    driver.register(4)
    (error,) = driver.ended
    assert "node 'a' is lost" in error
    assert driver.welcomes(4) == []
    assert isinstance(driver.told[4][-1], Stop)


def test_who_comes_to_a_node_that_was_lost_before_is_told_to_stop() -> None:
    """With the driver all places ended."""
    first = Driver()
    first.register(1)
    again = Driver(first.coordinator.state())
    again.register(7)
    assert "node 'a' is lost" in again.ended[0]
    assert [type(each) for each in again.told[7]] == [Stop]


def test_what_a_standby_said_before_its_promotion_is_a_sign_of_life_only(driver: Driver) -> None:
    """It was under way: it says nothing of the node, nor that this has begun here."""
    driver.vouch(1, 1, standby=2)
    driver.do(driver.coordinator.heartbeat(1, Heartbeat("a", 1, {"input_position": 7}), 1.0))
    driver.lose(1)
    driver.do(driver.coordinator.heartbeat(2, Heartbeat("a", 2, {"standby": True}), 1.0))
    assert driver.coordinator.nodes["a"].progress == {"input_position": 7}
    driver.do(driver.coordinator.heartbeat(2, Heartbeat("a", 3, {"input_position": 8}), 2.0))
    assert driver.coordinator.nodes["a"].progress == {"input_position": 8}


@pytest.mark.parametrize("late", [False, True])
def test_who_is_promoted_is_given_the_time_that_it_takes_to_begin(
    driver: Driver, *, late: bool
) -> None:
    """It is rebuilt from what it holds, and says nothing meanwhile; then it must be heard again."""
    coordinator = driver.coordinator
    driver.beat(0, 2_000, {1: 1, 2: 2})
    driver.vouch(1, 1, standby=2)
    driver.lose(1)
    if late:
        driver.do(coordinator.heartbeat(2, Heartbeat("a", 2, {"standby": True}), 2_000.0))
    driver.beat(2_000, 12_000, {})
    assert driver.killed == []
    driver.beat(12_000, 13_000, {2: 3})
    driver.beat(13_000, 23_000, {})
    assert driver.killed == [2]

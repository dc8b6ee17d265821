"""Where a query listens: on loopback unless it is told otherwise, and where others can reach it."""

from pathlib import Path

import pytest

from rewake.drill.queries import ItemDrill
from rewake.drill.run import Watcher
from rewake.model.errors import UsageError
from rewake.net.queries.processes import Processes
from rewake.net.queries.running import RunningQuery
from rewake.net.wire.addresses import is_loopback, is_wildcard
from rewake.net.wire.listener import CannotListen, address_towards

SMALL = ItemDrill(tuples=20_000, items=500, event_tuples=1_000)


def outside() -> str:
    """An address of this machine that is not loopback, or the test is skipped."""
    try:
        own = address_towards(("192.0.2.1", 9))  # RFC 5737: nobody is there, and nothing is sent
    except CannotListen:
        pytest.skip("this machine has no network but loopback")
    if is_loopback(own):
        pytest.skip("this machine has no address but loopback")
    return own


def run(folder: Path, listen: str, *, allow_remote: bool = False) -> tuple[str, set[str]]:
    """Run a small query to its end; where its coordinator and its nodes listened."""
    query = RunningQuery(
        SMALL.build().plan(), folder, Processes(), listen=listen, allow_remote=allow_remote
    )
    with query:
        watcher = Watcher(query, SMALL.stream_name, 0)
        query.await_start()
        nodes = {query.status()[node.name]["address"][0] for node in query.plan.nodes}
        query.await_end(60.0)
        watcher.thread.join(20.0)
        watcher.leave()
    assert SMALL.check([watcher.table()]).right
    return query.endpoint.address[0], nodes


def test_a_query_listens_on_loopback_alone(tmp_path: Path) -> None:
    """Nobody asked for more."""
    query = RunningQuery(SMALL.build().plan(), tmp_path, Processes())
    with query:
        query.await_start()
        assert query.endpoint.address[0] == "127.0.0.1"


def test_a_query_listens_at_another_loopback_address(tmp_path: Path) -> None:
    """That needs no leave: no other machine can connect."""
    coordinator, nodes = run(tmp_path, "127.0.0.2")
    assert coordinator == "127.0.0.2"
    assert all(is_loopback(node) for node in nodes)


def test_a_query_at_an_outside_address_has_its_nodes_there_too(tmp_path: Path) -> None:
    """A node that listened on loopback could not be reached from another machine."""
    own = outside()
    assert run(tmp_path, own, allow_remote=True) == (own, {own})


def test_an_outside_address_is_refused_without_leave(tmp_path: Path) -> None:
    """And the folder is free for a start that is right."""
    plan = SMALL.build().plan()
    with pytest.raises(UsageError, match="say allow_remote=True"):
        RunningQuery(plan, tmp_path, Processes(), listen=outside())
    with RunningQuery(plan, tmp_path, Processes()) as query:
        assert query.active


@pytest.mark.parametrize("everywhere", ["0.0.0.0", "::", ""])
def test_every_address_at_once_is_no_address_to_connect_to(tmp_path: Path, everywhere: str) -> None:
    """Nodes on other machines could not be told where to go."""
    assert is_wildcard(everywhere)
    with pytest.raises(UsageError, match="give the address under which"):
        RunningQuery(
            SMALL.build().plan(), tmp_path, Processes(), listen=everywhere, allow_remote=True
        )


def test_the_way_to_a_peer_gives_the_own_address() -> None:
    """A peer on loopback sees loopback; one that is nowhere is an error."""
    assert is_loopback(address_towards(("127.0.0.1", 1)))
    assert not is_wildcard("localhost")
    with pytest.raises(CannotListen, match="no way from here"):
        address_towards(("no such name.invalid", 1))

"""Shard hosts as real processes: they keep state, pass it on, and never outlive their executor."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from shard_vocabulary import (
    NEXT_RUN,
    OPERATOR,
    SCHEMA,
    alive,
    executors,
    host_pids,
    until,
)

from rewake.model.errors import (
    ArithmeticOverflow,
    BadPeer,
    CheckpointWithoutLog,
    LogBehindCheckpoint,
    NotOwner,
    OtherOperator,
    OtherQuery,
    OtherRows,
    OtherShard,
    SchemaMismatch,
)
from rewake.net.shards import client as shard_client
from rewake.net.shards import wire as shard_wire
from rewake.net.shards.delivered import delivered_schema
from rewake.net.shards.folder import ShardFolder
from rewake.net.wire.authentication import Token
from rewake.operators.aggregate.spec_json import spec_from_json

BIG = 2**62


def test_a_shard_keeps_its_windows_from_batch_to_batch(tmp_path: Path) -> None:
    """Results as of one stream; one host serves all batches and all shards."""
    with executors(tmp_path) as (executor,):
        assert executor.ask(tmp_path, 0, [(1, 10), (2, 20), (1, 30)]) == [(1, 40)]
        assert executor.ask(tmp_path, 1, [(2, 1)]) == [(2, 21)]
        assert executor.ask(tmp_path, 0, [(1, 10), (1, 5)], shard=1) == [(1, 15)]
        assert len(host_pids(tmp_path)) == 1


def starting_hosts(at: Path) -> list[int]:
    """Processes of hosts of this folder, whether or not they say so already."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            words = each.read_bytes().split(b"\0")
            if b"rewake.net.shards.host" in words and str(at).encode() in words:
                found.append(int(each.parent.name))
    return found


def test_a_host_that_is_killed_while_it_starts_is_started_again(tmp_path: Path) -> None:
    """A local fault, of which the task hears nothing."""
    killed: list[int] = []

    def strike() -> None:
        until(lambda: starting_hosts(tmp_path))
        killed.extend(starting_hosts(tmp_path)[:1])
        os.kill(killed[0], signal.SIGKILL)

    with executors(tmp_path) as (executor,):
        watching = threading.Thread(target=strike)
        watching.start()
        assert executor.ask(tmp_path, 0, [(1, 10), (1, 30)]) == [(1, 40)]
        watching.join()
        assert killed
        assert killed[0] not in host_pids(tmp_path)


def test_a_repeated_batch_gives_the_same_results_and_changes_nothing(tmp_path: Path) -> None:
    """From the host's memory, and from the log when the host is another."""
    with executors(tmp_path) as (executor,):
        executor.ask(tmp_path, 0, [(1, 10)])
        for _ in range(2):
            assert executor.ask(tmp_path, 1, [(1, 30), (2, 5)]) == [(1, 40)]
        os.kill(executor.host(tmp_path), signal.SIGKILL)
        assert executor.ask(tmp_path, 1, [(1, 30), (2, 5)]) == [(1, 40)]
        assert executor.ask(tmp_path, 2, [(2, 1)]) == [(2, 6)]


def test_a_batch_with_other_rows_is_computed_anew_for_a_new_run_of_the_query(
    tmp_path: Path,
) -> None:
    """From the state before it, as often as it takes; a run that is over changes nothing."""
    with executors(tmp_path) as (executor,):
        executor.ask(tmp_path, 0, [(1, 10), (2, 5)])
        assert executor.ask(tmp_path, 1, [(1, 30)]) == [(1, 40)]
        with pytest.raises(OtherRows, match="twice in one run"):
            executor.ask(tmp_path, 1, [(1, 31)])
        for run, rows, results in (
            (NEXT_RUN, [(1, 31), (2, 1)], [(1, 41), (2, 6)]),
            (bytes([3] * 16), [], []),
            (bytes([4] * 16), [(2, 7)], [(2, 12)]),
        ):
            for _ in range(2):
                assert executor.ask(tmp_path, 1, rows, run=run) == results
            os.kill(executor.host(tmp_path), signal.SIGKILL)
            assert executor.ask(tmp_path, 1, rows, run=run) == results
        for over in (NEXT_RUN, bytes([1] * 16)):
            with pytest.raises(OtherRows, match="another run has followed"):
                executor.ask(tmp_path, 1, [(1, 99)], run=over)
        assert executor.ask(tmp_path, 2, [(1, 1), (2, 2), (2, 3)]) == [(1, 11), (2, 5)]


def test_a_shard_whose_folder_is_another_ones_is_refused(tmp_path: Path) -> None:
    """Of another shard, or of another `at`; also while its host lives."""
    at, other = tmp_path / "at", tmp_path / "other"
    with executors(at) as (executor,), executors(other) as (elsewhere,):
        for shard in range(2):
            executor.ask(at, 0, [(1, 10)], shard=shard)
        elsewhere.ask(other, 0, [(1, 70)])
        for survives in (True, False):
            swap(at / "shard-0000", at / "shard-0001")
            if not survives:
                os.kill(executor.host(at), signal.SIGKILL)
            for shard in range(2):
                with pytest.raises(OtherShard, match=f"log of shard {1 - shard} of 2 of this"):
                    executor.ask(at, 1, [(1, 1)], shard=shard)
            swap(at / "shard-0000", at / "shard-0001")
        os.kill(elsewhere.host(other), signal.SIGKILL)
        swap(at / "shard-0000", other / "shard-0000")
        with pytest.raises(OtherShard, match="of another `at`"):
            executor.ask(at, 1, [(1, 1)])
        swap(at / "shard-0000", other / "shard-0000")
        assert executor.ask(at, 1, [(1, 1)]) == [(1, 11)]
        assert executor.ask(at, 1, [(1, 1)], shard=1) == [(1, 11)]


def swap(one: Path, other: Path) -> None:
    """Each folder where the other was."""
    aside = one.with_name("aside")
    for source, target in ((one, aside), (other, one), (aside, other)):
        source.rename(target)


def test_a_copy_of_a_folder_is_served_by_a_host_of_its_own(tmp_path: Path) -> None:
    """While the host of the original lives, which the copied claims and registration name."""
    at, copy = tmp_path / "at", tmp_path / "copy"
    with executors(copy), executors(at) as (executor,):
        for shard in range(2):
            executor.ask(at, 0, [(1, 10)], shard=shard)
        shutil.copytree(at, copy)
        original = _logs(at)
        with pytest.raises(NotOwner, match=f"serves {at}, not {copy}"):
            shard_client.stop_host(ShardFolder(str(copy)), _address(at, executor.identity))
        for shard in range(2):
            assert executor.ask(copy, 1, [(1, 5)], shard=shard) == [(1, 15)]
        assert executor.ask(copy, 2, [(1, 6), (1, 7)]) == [(1, 13)]
        assert _logs(at) == original, "what is for the copy stays out of the original"
        copied = _logs(copy)
        assert executor.ask(at, 1, [(1, 100)]) == [(1, 110)]
        assert _logs(copy) == copied
        assert executor.host(copy) != executor.host(at)


def test_a_host_leaves_when_a_copy_is_put_in_the_place_of_its_folder(tmp_path: Path) -> None:
    """So that the folder which was moved aside, and holds its lock, gets a host of its own."""
    at, aside = tmp_path / "at", tmp_path / "aside"
    with executors(aside), executors(at) as (executor,):
        executor.ask(at, 0, [(1, 10)])
        former = executor.host(at)
        os.kill(former, signal.SIGSTOP)  # it shall see both at once
        at.rename(aside)
        shutil.copytree(aside, at)
        os.kill(former, signal.SIGCONT)
        assert executor.ask(aside, 1, [(1, 5)]) == [(1, 15)]
        assert executor.ask(at, 1, [(1, 6)]) == [(1, 16)]
        until(lambda: not alive(former))


def test_a_folder_under_another_name_is_the_same_folder(tmp_path: Path) -> None:
    """A link to it is no copy: its host goes on."""
    at, link = tmp_path / "at", tmp_path / "link"
    with executors(at) as (executor,):
        executor.ask(at, 0, [(1, 10)])
        link.symlink_to(at)
        results, figures = executor.ask_all(link, 1, [(1, 5)])
        assert (results, figures["epoch"]) == ([(1, 15)], 0)


def _logs(at: Path) -> dict[Path, bytes]:
    """All that is in the folders of the shards."""
    return {path: path.read_bytes() for path in at.glob("shard-*/*") if path.is_file()}


def test_a_shard_without_rows_records_the_batch_all_the_same(tmp_path: Path) -> None:
    """So that of two that follow each other none can be missing."""
    with executors(tmp_path) as (executor,):
        executor.ask(tmp_path, 0, [(1, 10)])
        executor.ask(tmp_path, 0, [], shard=1)
        assert executor.ask(tmp_path, 1, []) == []
        assert executor.ask(tmp_path, 2, [(1, 5)]) == [(1, 15)]
        with pytest.raises(LogBehindCheckpoint):
            executor.ask(tmp_path, 2, [(1, 5)], shard=1)


def test_a_task_elsewhere_asks_the_owner_and_takes_over_only_when_it_is_gone(
    tmp_path: Path,
) -> None:
    """State stays with its shard while Spark moves tasks."""
    with executors(tmp_path, 2) as (one, other):
        one.ask(tmp_path, 0, [(1, 10)])
        results, figures = other.ask_all(tmp_path, 1, [(1, 1), (1, 2)])
        assert (results, figures["epoch"]) == ([(1, 11)], 0)
        (owner,) = host_pids(tmp_path)
        one.kill()
        until(lambda: not alive(owner))
        assert figures["last_recovery_seconds"] == 0
        results, figures = other.ask_all(tmp_path, 2, [(1, 5)])
        assert (results, figures["epoch"]) == ([(1, 7)], 1)
        assert figures["last_recovery_seconds"] > 0
        assert figures["last_recovery_predicted_seconds"] > 0


def test_an_owner_that_sleeps_is_superseded_and_refused_when_it_wakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log's epochs decide, not who thinks that it is the owner."""
    monkeypatch.setattr(shard_wire, "AUTHENTICATION_SECONDS", 1.0)
    with executors(tmp_path, 2) as (one, other):
        one.ask(tmp_path, 0, [(1, 10)])
        asleep = one.host(tmp_path)
        os.kill(asleep, signal.SIGSTOP)
        assert other.ask_all(tmp_path, 1, [(1, 1)])[1]["epoch"] == 1
        os.kill(asleep, signal.SIGCONT)
        # Whoever still has its address is sent away, and the log has not changed.
        monkeypatch.setattr(
            ShardFolder, "owner", _first_to(_address(tmp_path, one.identity), ShardFolder.owner)
        )
        assert one.ask(tmp_path, 2, [(1, 3), (1, 4)]) == [(1, 7)]


def _address(at: Path, identity: object) -> tuple[str, int]:
    import json

    (path,) = (at / "hosts").glob(f"*-{identity}.json")
    host, port = json.loads(path.read_text())["address"]
    return host, port


def _first_to(address, original):  # type: ignore[no-untyped-def]
    """The first look at a shard's owner finds a former one."""
    looks = []

    def owner(self, number):  # type: ignore[no-untyped-def]
        looks.append(number)
        found = original(self, number)
        return found._replace(epoch=0, address=address) if len(looks) == 1 else found

    return owner


def test_a_batch_that_fails_leaves_the_shard_as_it_was(tmp_path: Path) -> None:
    """The error comes back as it was raised; the same batch without the mistake is taken."""
    with executors(tmp_path) as (executor,):
        executor.ask(tmp_path, 0, [(1, BIG), (2, 1)])
        with pytest.raises(ArithmeticOverflow):
            executor.ask(tmp_path, 1, [(2, 3), (1, BIG)])
        assert executor.ask(tmp_path, 1, [(2, 3), (1, 1)]) == [(1, BIG + 1), (2, 4)]


def test_rows_are_put_in_order_before_they_are_counted(tmp_path: Path) -> None:
    """By the given columns, and not as Spark's shuffle happened to give them."""
    with executors(tmp_path) as (executor,):
        assert executor.ask(tmp_path, 0, [(1, 100), (1, 20), (1, 3)], order_by=("seq",)) == [
            (1, 23)
        ]
        # The order is no part of what must stay the same.
        assert executor.ask(tmp_path, 1, [(1, 7)], order_by=()) == [(1, 107)]


def test_what_is_not_this_operators_state_is_refused(tmp_path: Path) -> None:
    """Another operator, other columns, another number of shards, another query, no log."""
    narrow = SCHEMA.set(1, SCHEMA.field("price").with_type(pa.int32()))
    with executors(tmp_path) as (executor,):
        with pytest.raises(CheckpointWithoutLog):
            executor.ask(tmp_path, 3, [(1, 1)])
        executor.ask(tmp_path, 0, [(1, 1)])
        other = OPERATOR | {"window": {"kind": "count", "size": 3, "advance": 3}}
        for changed, words in (
            ({"operator": other}, "another computation"),
            ({"shards": 3}, "another number of shards"),
        ):
            with pytest.raises(OtherOperator, match=words):
                executor.ask(tmp_path, 1, [(1, 1)], **changed)
        with pytest.raises((OtherOperator, BadPeer)):
            executor.ask(tmp_path, 1, [(1, 1)], schema=narrow)
        with pytest.raises(OtherQuery):
            executor.ask(tmp_path, 0, [(1, 1)], query=bytes(16))
        wrong = OPERATOR | {"aggregates": [{"function": "sum", "column": "nowhere", "name": ""}]}
        with pytest.raises(SchemaMismatch):
            executor.ask(tmp_path / "new", 0, [(1, 1)], operator=wrong)
        assert executor.ask(tmp_path, 1, [(1, 1)]) == [(1, 2)]
        os.kill(executor.host(tmp_path / "new"), signal.SIGKILL)


def test_a_host_is_woken_before_it_is_needed_where_shards_have_none(tmp_path: Path) -> None:
    """And not where they have one, here or elsewhere; nobody has to wait for it."""
    with executors(tmp_path, 2) as (one, other):
        starting = shard_client.wake_host(str(tmp_path), "127.0.0.1", lambda: one.identity)
        assert starting is not None
        starting.join()
        woken = one.host(tmp_path)
        assert one.ask(tmp_path, 0, [(1, 10), (1, 20)]) == [(1, 30)]
        assert one.host(tmp_path) == woken, "the task found the host that had been woken"
        for each in (one, other):
            assert (
                shard_client.wake_host(str(tmp_path), "127.0.0.1", lambda each=each: each.identity)
                is None
            )
        address = ShardFolder(str(tmp_path)).owner(0).address
        assert address is not None
        os.kill(woken, signal.SIGKILL)
        # Its socket lives as long as its last thread.
        until(lambda: not shard_client.host_answers(address))
        starting = shard_client.wake_host(str(tmp_path), "127.0.0.1", lambda: other.identity)
        assert starting is not None, "the owner is gone"
        starting.join()
        assert other.ask(tmp_path, 1, [(1, 5), (1, 6)]) == [(1, 11)]


def test_a_host_ends_when_its_executor_is_killed(tmp_path: Path) -> None:
    """No orphan, and no trace of where it listened."""
    with executors(tmp_path) as (executor,):
        executor.ask(tmp_path, 0, [(1, 1)])
        host = executor.host(tmp_path)
        executor.kill()
        until(lambda: not alive(host))
        assert host_pids(tmp_path) == []


def test_a_host_ends_when_it_is_told_to_or_its_folder_is_gone(tmp_path: Path) -> None:
    """What it had is durable: the next host goes on."""
    at = tmp_path / "state"
    with executors(at) as (executor,):
        executor.ask(at, 0, [(1, 1)])
        host, address = executor.host(at), _address(at, executor.identity)
        shard_client.stop_host(ShardFolder(str(at)), address)
        until(lambda: not alive(host))
        assert executor.ask(at, 1, [(1, 2)]) == [(1, 3)]
        host = executor.host(at)
        shutil.rmtree(at)
        until(lambda: not alive(host))


def test_a_host_that_nobody_asks_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time that it was given."""
    monkeypatch.setattr(shard_client, "IDLE_SECONDS", "0.5")
    with executors(tmp_path) as (executor,):
        executor.ask(tmp_path, 0, [(1, 1)])
        until(lambda: host_pids(tmp_path) == [])
        assert executor.ask(tmp_path, 1, [(1, 2)]) == [(1, 3)]


def test_strangers_are_cut_off_and_others_served(tmp_path: Path) -> None:
    """Bytes that are no frame, and the token of another folder."""
    with executors(tmp_path) as (executor,):
        executor.ask(tmp_path, 0, [(1, 1)])
        address = _address(tmp_path, executor.identity)
        with socket.create_connection(address, timeout=10.0) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
            with suppress(ConnectionResetError):
                while stranger.recv(4096):
                    pass
        with (
            socket.create_connection(address, timeout=10.0) as stranger,
            pytest.raises((BadPeer, shard_wire.Disconnected)),
        ):
            shard_wire.ShardConnection(stranger, "host", Token(bytes(32)), accepting=False)
        assert executor.ask(tmp_path, 1, [(1, 2)]) == [(1, 3)]


def test_the_token_is_its_owners_alone_and_the_same_for_all(tmp_path: Path) -> None:
    """Whoever comes first draws it."""
    token = ShardFolder(str(tmp_path)).token()
    assert ShardFolder(str(tmp_path)).token() == token
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("window", [{"kind": "running"}, OPERATOR["window"]])
def test_a_host_that_has_rehearsed_has_changed_nothing_and_needs_no_pandas(
    tmp_path: Path, window: dict[str, object]
) -> None:
    """A rehearsal is a recovery and a turn that nobody sees; pandas would be half of a start."""
    program = """
import json, sys
from pathlib import Path
import numpy as np, pyarrow as pa
from rewake.net.shards.delivered import delivered_schema
from rewake.net.shards.folder import ShardFolder
from rewake.net.shards.state import Description, ShardState, rehearse
from rewake.node.micro_batches.next_batch import BatchIdentity
from rewake.node.micro_batches.shard_batches import BatchRecord
from rewake.operators.columns.arrays import arrow_array
from rewake.operators.row_digest import NO_ROWS
from rewake.recovery.promises.rates import RecoveryRates

folder, operator = ShardFolder(sys.argv[1]), json.loads(sys.argv[2])
schema = pa.schema([("item", pa.int64()), ("price", pa.int64())])
description = Description(operator, schema)
folder.publish_operator(description.identity)
items = arrow_array(np.array([3, 1, 2, 1]), pa.int64())
rows = pa.RecordBatch.from_arrays([items, items], schema=schema)
rehearse(folder)
for epoch in range(2):
    state = ShardState(folder, 0, description, epoch, "nobody", RecoveryRates())
    batch = BatchRecord(BatchIdentity(bytes(16), epoch), bytes(16), NO_ROWS)
    results = state.process(batch, [rows], "refuse")
    state.close()
    files = {path: path.read_bytes() for path in Path(sys.argv[1]).rglob("*") if path.is_file()}
    rehearse(folder)
    assert files == {each: each.read_bytes() for each in files}
    found = sorted(tuple(row.values()) for each in results for row in each.to_pylist())
    print(found)
assert "pandas" not in sys.modules
"""
    operator = OPERATOR | {"window": window}
    asked = [sys.executable, "-c", program, str(tmp_path / "at"), json.dumps(operator)]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    totals = {
        "running": ["[(1, 2), (2, 2), (3, 3)]", "[(1, 4), (2, 4), (3, 6)]"],
        "count": ["[(1, 2)]", "[(1, 2), (2, 4), (3, 6)]"],
    }
    assert done.stdout.splitlines() == totals[str(window["kind"])]


# --- late rows ----------------------------------------------------------------------------------

BY_TIME = {
    "by": ["item"],
    "window": {"kind": "time", "size": 10, "advance": 10},
    "aggregates": [{"function": "sum", "column": "price", "name": ""}],
    "time": "seq",
    "route_late": True,
}


def test_late_rows_come_among_the_results_as_they_came(tmp_path: Path) -> None:
    """Whole, each batch's once, also when it is repeated by a host that has the log alone."""
    asked = {"operator": BY_TIME, "order_by": ("seq",)}
    with executors(tmp_path) as (executor,):
        first = executor.ask(tmp_path, 0, [(1, each) for each in range(30)], **asked)
        assert [row[-1] for row in first] == [None] * 3
        rows = [(1, 8), (1, 9)]
        for _ in range(2):
            found = executor.ask(tmp_path, 1, rows, **asked)
            assert [row[-1] for row in found] == [
                {"item": 1, "price": 9, "seq": 1},
                {"item": 1, "price": 8, "seq": 2},
            ]
            assert {each for row in found for each in row[:-1]} == {None}
        os.kill(executor.host(tmp_path), signal.SIGKILL)
        assert executor.ask(tmp_path, 1, rows, **asked) == found
        assert executor.ask(tmp_path, 2, [(1, 5)], recover_within_ms=10.0, **asked) != []


def test_results_must_leave_room_for_late_rows() -> None:
    """A column of the user's is not overwritten."""
    functions = [{"function": "sum", "column": "price", "name": "_late"}]
    spec = spec_from_json(BY_TIME | {"aggregates": functions})
    with pytest.raises(SchemaMismatch, match="column '_late', which is to hold"):
        delivered_schema(spec.operator(SCHEMA))

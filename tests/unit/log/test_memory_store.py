"""The store in memory: the contract, and what power loss may do."""

import pytest

from rewake.log.store import publish
from rewake.model.errors import StorageFull
from rewake.sim.memory import Choices, Fate, Faults, MemoryStore, PowerLost


def states(store: MemoryStore, name: str, seeds: int = 300) -> set[bytes | None]:
    """What the file may hold after power loss; None when it is not there."""
    found: set[bytes | None] = set()
    for seed in range(seeds):
        after = store.crash(Choices(seed))
        found.add(after.read(name, 0, 1 << 20) if name in after.names() else None)
    return found


def test_an_unsynced_write_may_be_kept_lost_torn_zeroed_or_garbled():
    """Every fate is met; what was synced before is always there."""
    store = MemoryStore()
    store.create("a", b"old.")
    store.sync("a")
    store.sync_directory()
    store.write("a", 4, [b"new!"])
    found = states(store, "a")
    assert {b"old.", b"old.n", b"old.new", b"old.new!", b"old.\0\0\0\0"} <= found
    assert all(state is not None and state.startswith(b"old.") for state in found)
    store.sync("a")
    assert states(store, "a") == {b"old.new!"}


def test_a_later_write_may_survive_an_earlier_one():
    """Reordering: the hole reads as zeros."""
    store = MemoryStore()
    store.create("a", b"")
    store.sync_directory()
    store.write("a", 0, [b"11"])
    store.write("a", 2, [b"22"])
    assert b"\0\x0022" in states(store, "a")


def test_an_unsynced_creation_or_deletion_may_be_undone():
    """Until the directory is synced."""
    store = MemoryStore()
    store.create("a", b"x")
    store.sync("a")
    assert states(store, "a") == {None, b"x"}
    store.sync_directory()
    store.delete("a")
    assert states(store, "a") == {None, b"x"}
    store.sync_directory()
    assert states(store, "a") == {None}


def test_a_published_file_is_whole_wherever_the_power_goes():
    """Old or new, never a mixture, never nothing once it was there."""
    store = MemoryStore()
    publish(store, "a", b"first version")
    for operation in range(1, 6):
        copy = store.killed()
        copy.faults = Faults(crash_at=operation)
        try:
            publish(copy, "a", b"second version")
        except PowerLost:
            assert states(copy, "a", 50) <= {b"first version", b"second version"}
        else:
            assert states(copy, "a", 50) == {b"second version"}


def test_after_power_loss_the_machine_is_off():
    """Every later operation fails too."""
    store = MemoryStore(Faults(crash_at=2))
    store.create("a", b"")
    for _ in range(3):
        with pytest.raises(PowerLost):
            store.write("a", 0, [b"x"])


def test_a_fault_can_be_once_or_for_good_and_can_cut_a_write_short():
    """Counted from one, over the kinds that were asked for."""
    once = MemoryStore(
        Faults(fail_at=2, error=StorageFull("full"), only=["write"], short_write=0.5)
    )
    once.create("a", b"")
    once.write("a", 0, [b"1234"])
    with pytest.raises(StorageFull):
        once.write("a", 4, [b"5678"])
    assert once.read("a", 0, 99) == b"123456"
    once.write("a", 4, [b"5678"])
    assert once.read("a", 0, 99) == b"12345678"


def test_two_handles_share_a_disk_but_not_the_lock():
    """As two processes would."""
    first = MemoryStore()
    second = first.attach()
    first.create("a", b"x")
    assert second.read("a", 0, 9) == b"x"
    assert first.try_lock()
    assert not second.try_lock()
    second.unlock()
    assert not second.try_lock()
    first.close()
    assert second.try_lock()


def test_choices_are_repeatable_and_meet_every_option():
    """The same seed, the same disk."""
    picks = [Choices(7)(len(Fate)) for _ in range(3)]
    assert len(set(picks)) == 1
    choose = Choices(1)
    assert {choose(len(Fate)) for _ in range(100)} == set(range(len(Fate)))

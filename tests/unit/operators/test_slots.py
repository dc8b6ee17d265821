"""Slots of parts are used again, and room for them grows as they are needed."""

from __future__ import annotations

import numpy as np

from rewake.operators.columns.arrays import grown, with_room
from rewake.operators.kit.slots import SlotPool


def pool() -> tuple[SlotPool, list[int]]:
    """A pool whose height is the second of two registers, and the capacities it asked for."""
    asked: list[int] = []
    return SlotPool(np.zeros(2, np.int64), 1, asked.append), asked


def test_no_slot_is_taken_twice_and_the_lowest_come_first() -> None:
    """All of a growth are given out before the next one."""
    slots, asked = pool()
    first, second = slots.take(3), slots.take(1500)
    together = np.concatenate([first, second])
    assert sorted(first.tolist()) == [0, 1, 2]
    assert np.unique(together).size == slots.used == 1503
    assert asked == [1024, 1536]
    assert together.max() < asked[-1]


def test_a_slot_that_was_given_back_is_the_next_one_taken() -> None:
    """So memory that is warm is used again."""
    slots, asked = pool()
    taken = slots.take(10)
    slots.give_back(taken[2:4])
    assert slots.used == 8
    assert sorted(slots.take(2).tolist()) == sorted(taken[2:4].tolist())
    assert asked == [1024]


def test_a_slot_taken_by_the_register_is_taken() -> None:
    """Kernels do it so."""
    registers = np.zeros(1, np.int64)
    slots = SlotPool(registers, 0, lambda _: None)
    slots.ensure_free(5)
    registers[0] -= 1
    slot = slots.free[registers[0]]
    assert slots.used == 1
    assert slot not in slots.take(1000)


def test_tables_grow_by_rows() -> None:
    """New rows are what is said, old ones what they were."""
    table = grown(np.ones((2, 2), np.int64), 3, np.array([-1, 0]))
    assert table.tolist() == [[1, 1], [1, 1], [-1, 0]]
    assert with_room(table, 3) is table
    assert with_room(table, 4).shape == (1024, 2)

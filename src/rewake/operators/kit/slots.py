"""Slots: small numbers for the parts of an operator, each given to another part when one has ended.

Compiled code takes and gives back slots, too, so free ones are a stack in an array, and how many
there are is one of the kernel's registers.  To take a slot, lower the register and read the array
there; to give one back, write it there and raise the register.

Invariants: `free` is as long as there are slots, and its first `registers[height]` entries are the
free ones, each once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rewake.operators.columns.arrays import Int32s, Int64s, capacity_for, grown

__all__ = ["SlotPool"]


class SlotPool:
    """Free slots; `grow` makes room in the owner's columns for slots below a capacity."""

    def __init__(self, registers: Int64s, height: int, grow: Callable[[int], None]) -> None:
        self._registers = registers
        self._height = height
        self._grow = grow
        self.free = np.zeros(0, np.int32)

    @property
    def used(self) -> int:
        """How many slots are taken."""
        return self.free.size - int(self._registers[self._height])

    def ensure_free(self, least: int) -> None:
        """At least `least` free slots; of new ones the lowest are given out first."""
        free, old = int(self._registers[self._height]), self.free.size
        if free >= least:
            return
        capacity = capacity_for(old + least - free, old)
        added = np.arange(capacity - 1, old - 1, -1, dtype=np.int32)
        self.free = grown(np.concatenate([added, self.free[:free]]), capacity)
        self._registers[self._height] = free + added.size
        self._grow(capacity)

    def take(self, count: int) -> Int32s:
        """So many slots, for parts that open."""
        self.ensure_free(count)
        self._registers[self._height] -= count
        first = int(self._registers[self._height])
        return self.free[first : first + count].copy()

    def give_back(self, slots: Int32s) -> None:
        """The parts in these slots have ended."""
        first = int(self._registers[self._height])
        self.free[first : first + slots.size] = slots
        self._registers[self._height] += slots.size

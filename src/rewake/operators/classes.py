"""The classes of operators by what a restart does to their output (Hwang 3.2.2, Figure 3.3).

Each class contains the next: a repeatable operator is also convergent-capable and deterministic.
The class says what recovery without any state can promise; approaches that keep state or
determinants promise more.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["OperatorClass"]


class OperatorClass(IntEnum):
    """From the least to the most that is known of an operator."""

    # The same input may give another output: by chance, by time, by what a database says.
    ARBITRARY = 0
    # The same input, from the start, always gives the same output.
    DETERMINISTIC = 1
    # Restarted empty at any earlier input, its output becomes the same again after a while.
    CONVERGENT_CAPABLE = 2
    # Restarted empty at any earlier input, all output is identical: at most one tuple of each input
    # makes an output tuple.
    REPEATABLE = 3

    @property
    def words(self) -> str:
        """For people."""
        return self.name.lower().replace("_", "-")

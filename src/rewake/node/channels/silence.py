"""Which inputs from outside have brought nothing for as long as they may be silent."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Silence"]


class _Heard(NamedTuple):
    expected: int
    since_ms: float
    told: bool


class Silence:
    """By channel, which position is awaited, since when; a silence is told once."""

    def __init__(self) -> None:
        self._heard: dict[int, _Heard] = {}

    def begins(self, channel: int, expected: int, now_ms: float, idle_after_ms: float) -> bool:
        """Whether a channel that still awaits `expected` counts as silent from now on."""
        heard = self._heard.get(channel, _Heard(-1, now_ms, told=False))
        if expected != heard.expected:
            self._heard[channel] = _Heard(expected, now_ms, told=False)
            return False
        if heard.told or now_ms - heard.since_ms < idle_after_ms:
            return False
        self._heard[channel] = heard._replace(told=True)
        return True

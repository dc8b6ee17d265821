"""How much a node may hold, and how far it may run ahead."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """Bounds that make back-pressure reach from the slowest subscriber to the source.

    `window_bytes`: in flight to one subscriber.  `queue_bytes`: in memory per output.
    `pending_bytes`, `pending_frames`: appended and not yet durable.  `input_bytes`: arrived and
    waiting per channel.
    `retained_bytes`: in memory per output that stays there until no node can ask for it again.
    `lag_tuples`: how far a connected subscriber may fall behind before the node waits for it;
    `backlog_tuples`: the same for one that is gone (its tuples wait in the log).
    """

    window_bytes: int = 8 * _MIB
    queue_bytes: int = 16 * _MIB
    retained_bytes: int = 512 * _MIB
    pending_bytes: int = 64 * _MIB
    pending_frames: int = 4096
    input_bytes: int = 8 * _MIB
    lag_tuples: int = 4_000_000
    backlog_tuples: int = 1_000_000_000
    # How much later than the last a tick of the machine's clock is, at least.
    clock_resolution_ms: int = 10
    # Turns between two looks at what is not needed any more.
    turns_per_trim: int = 16

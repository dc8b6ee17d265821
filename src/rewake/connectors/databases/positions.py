"""What a sink records in the database it writes to: who may write, and how far it has come.

    rewake_sinks       sink, shard | shards, writes, epoch     who may write, and what
    rewake_positions   sink, shard, channel | position         input up to here is in the tables
    rewake_origins     sink, shard | origins                   from which logs that is, as JSON

What always holds: positions and origins change in the transaction that writes the tuples before
them, and only under the newest epoch.  A transaction reads its epoch with a lock, so that a
successor, who raises it, waits for the end of a transaction under way and then sees what it did.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rewake.connectors.databases.session import SqlSession
from rewake.model.connectors import SinkLook
from rewake.model.errors import DamagedData, Fenced, UsageError

__all__ = ["SinkRecord"]

_TABLES: Final = {
    "rewake_sinks": """
        CREATE TABLE rewake_sinks (
            sink text NOT NULL, shard bigint NOT NULL, shards bigint NOT NULL,
            writes text NOT NULL, epoch bigint NOT NULL, PRIMARY KEY (sink, shard))""",
    "rewake_positions": """
        CREATE TABLE rewake_positions (
            sink text NOT NULL, shard bigint NOT NULL, channel bigint NOT NULL,
            position bigint NOT NULL, PRIMARY KEY (sink, shard, channel))""",
    "rewake_origins": """
        CREATE TABLE rewake_origins (
            sink text NOT NULL, shard bigint NOT NULL, origins text NOT NULL,
            PRIMARY KEY (sink, shard))""",
}
_MINE: Final = "WHERE sink = :sink AND shard = :shard"


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """The rows of one shard of a sink."""

    sink: str
    shard: int

    @property
    def tag(self) -> str:
        """What marks its sessions: short, and the same for all writers of one shard."""
        text = json.dumps([self.sink, self.shard])
        return f"rewake-{hashlib.sha256(text.encode()).hexdigest()[:24]}"

    def look(self, session: SqlSession) -> SinkLook:
        """How far the sink is and whose; nothing is changed, and its writer does not notice."""
        if not all(session.has_table(name) for name in _TABLES):
            return SinkLook({}, None)
        # In this order: a writer may be at work, and says whose tuples are no later than they come.
        positions = self.positions(session)
        return self._checked(positions, self._origins(session))

    def claim(self, session: SqlSession, shards: int, writes: str) -> tuple[int, SinkLook]:
        """Become the only writer; the epoch of that, and what predecessors have left.

        `writes` is what the sink does with tuples; another sink must have another name.
        """
        session.end_others(self.tag)
        session.tag(self.tag)
        _make_tables(session)
        with session.transaction():
            session.run(
                "INSERT INTO rewake_sinks (sink, shard, shards, writes, epoch) "
                "VALUES (:sink, :shard, :shards, :writes, 0) "
                "ON CONFLICT (sink, shard) DO NOTHING",
                shards=shards,
                writes=writes,
                **self._mine,
            )
            session.run(f"UPDATE rewake_sinks SET epoch = epoch + 1 {_MINE}", **self._mine)
            self._check_owner(session, shards, writes)
            ((epoch,),) = session.run(f"SELECT epoch FROM rewake_sinks {_MINE}", **self._mine)
            return int(epoch), self._checked(self.positions(session), self._origins(session))

    def check_epoch(self, session: SqlSession, epoch: int) -> None:
        """Refuse to write for somebody who has been succeeded, and keep successors waiting."""
        found = session.run(
            f"SELECT epoch FROM rewake_sinks {_MINE}{session.for_update}", **self._mine
        )
        if found != [(epoch,)]:
            newer = f"now has epoch {found[0][0]}" if found else "is not in rewake_sinks any more"
            raise Fenced(
                f"sink {self.sink!r} {newer}: it was opened again; this writer has epoch {epoch} "
                "and may not write any more"
            )

    def positions(self, session: SqlSession) -> dict[int, int]:
        """By channel: input up to here (exclusive) is in the tables."""
        rows = session.run(f"SELECT channel, position FROM rewake_positions {_MINE}", **self._mine)
        return {int(channel): int(position) for channel, position in rows}

    def check_positions(self, positions: dict[int, int], moves: dict[int, tuple[int, int]]) -> None:
        """Refuse to go on from anywhere else than where the last commit ended."""
        for channel, (start, end) in moves.items():
            if positions.get(channel, 0) != start:
                raise DamagedData(
                    f"sink {self.sink!r} has written channel {channel} up to {start} and goes on "
                    f"to {end}, but rewake_positions says {positions.get(channel, 0)}: somebody "
                    "else has changed it; restore it, or start anew with a sink of another name"
                )

    def move(self, session: SqlSession, channel: int, position: int) -> None:
        """Record that a channel is written up to here."""
        session.run(
            "INSERT INTO rewake_positions (sink, shard, channel, position) "
            "VALUES (:sink, :shard, :channel, :position) "
            "ON CONFLICT (sink, shard, channel) DO UPDATE SET position = excluded.position",
            channel=channel,
            position=position,
            **self._mine,
        )

    def bind(self, session: SqlSession, origins: Mapping[str, Any]) -> None:
        """Record from which logs the tuples are."""
        session.run(
            "INSERT INTO rewake_origins (sink, shard, origins) VALUES (:sink, :shard, :origins) "
            "ON CONFLICT (sink, shard) DO UPDATE SET origins = excluded.origins",
            origins=json.dumps(origins, sort_keys=True),
            **self._mine,
        )

    def _origins(self, session: SqlSession) -> dict[str, Any] | None:
        found = session.run(f"SELECT origins FROM rewake_origins {_MINE}", **self._mine)
        try:
            origins = json.loads(found[0][0]) if found else None
        except ValueError as error:
            origins = error
        if origins is None or isinstance(origins, dict):
            return origins
        raise DamagedData(
            f"rewake_origins says nothing of sink {self.sink!r} that can be read: somebody has "
            "changed it; restore it, or start anew with a sink of another name"
        )

    def _checked(self, positions: dict[int, int], origins: dict[str, Any] | None) -> SinkLook:
        """Both are written in one transaction; without positions all would be written again."""
        if origins is not None and not positions:
            raise DamagedData(
                f"rewake_origins says whose the rows of sink {self.sink!r} are, and "
                "rewake_positions does not say how far they go: somebody has changed it; restore "
                "both tables with the rows, or start anew with a sink of another name"
            )
        return SinkLook(positions, origins)

    @property
    def _mine(self) -> dict[str, Any]:
        return {"sink": self.sink, "shard": self.shard}

    def _check_owner(self, session: SqlSession, shards: int, writes: str) -> None:
        found = session.run(
            "SELECT DISTINCT shards, writes FROM rewake_sinks WHERE sink = :sink", sink=self.sink
        )
        for other in found:
            if other != (shards, writes):
                raise UsageError(
                    f"the database knows another sink {self.sink!r}: with {other[0]} shards, "
                    f"{other[1]}; this one has {shards} shards, {writes}; give it another name"
                )


def _make_tables(session: SqlSession) -> None:
    if all(session.has_table(name) for name in _TABLES):
        return
    with session.transaction():
        # Several shards may find at once that there are none.
        session.lock_out()
        for name, statement in _TABLES.items():
            if not session.has_table(name):
                session.run(statement)

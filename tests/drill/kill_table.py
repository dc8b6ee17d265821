"""Every kill point, and a scenario in which it is certainly passed.

A scenario is a query and perhaps an accident before: some points lie on the way back.  The table is
complete: `test_kill_points` compares it with the points that there are.  Run as a program, this
module prints it.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from rewake.net.kill_points import FIRED_FILE, Fault


@dataclass(frozen=True)
class Place:
    """Where a point is passed: by which node of which query, when, and after which accident."""

    point: str
    node: str = "averages"
    hit: int = 1
    life: int = 1
    after: Fault | None = None
    query: str = "averages"
    # What a test must do besides letting data flow.
    needs: str = ""

    @property
    def faults(self) -> list[Fault]:
        """The accident before, if there is one, and the kill."""
        kill = Fault(self.node, self.point, self.hit, self.life)
        return [kill] if self.after is None else [self.after, kill]

    @property
    def twice(self) -> list[Fault]:
        """The same, and another kill while the node recovers from it."""
        # Whoever dies before it has an epoch leaves it to its successor.
        early = self.point in ("node.start", "node.registered")
        life = self.life if early else self.life + 1
        return [*self.faults, Fault(self.node, "recovery.after_loading", 1, life)]


_DEAD_AVERAGES = Fault("averages", "node.after_work", 20)
_DEAD_FILTER = Fault("cheap", "node.after_work", 20)

NODE_PLACES = (
    Place("node.start"),
    Place("node.registered"),
    Place("node.welcomed"),
    Place("recovery.before_fencing"),
    Place("recovery.after_fencing"),
    Place("recovery.before_loading"),
    Place("recovery.after_loading"),
    Place("recovery.replaying", life=2, after=_DEAD_AVERAGES),
    Place("recovery.replayed", life=2, after=_DEAD_AVERAGES),
    Place("node.before_work", hit=15),
    Place("node.before_durable"),
    Place("node.before_commit", "sink", 2, query="files"),
    Place("node.after_commit", "sink", 2, query="files"),
    Place("node.stopping"),
    Place("node.after_start"),
    Place("node.after_began"),
    Place("node.after_lost", after=_DEAD_FILTER),
    Place("node.after_arrived", hit=12),
    Place("node.after_source_ended", "items"),
    Place("node.after_durable"),
    Place("node.after_delivered", "sink", 2, query="files"),
    Place("node.after_subscribed", "cheap"),
    Place("node.after_unsubscribed", "cheap", after=_DEAD_AVERAGES),
    Place("node.after_acked", "cheap", 7),
    Place("node.after_read_back", life=2, after=_DEAD_AVERAGES, needs="late reader"),
    Place("node.after_work", hit=25),
    Place("node.after_tick", hit=2),
    Place("channel.before_Append", hit=9),
    Place("channel.after_Append", hit=10),
    Place("channel.before_Connect"),
    Place("channel.after_Connect", "cheap"),
    Place("channel.before_Acknowledge", hit=8),
    Place("channel.after_Acknowledge", "cheap", 5),
    Place("channel.before_Answer", "cheap"),
    Place("channel.after_Answer", "items"),
    Place("channel.before_Send", "cheap", 11),
    Place("channel.after_Send", "items", 12),
    Place("channel.before_ReadLog", life=2, after=_DEAD_AVERAGES, needs="late reader"),
    Place("channel.after_ReadLog", life=2, after=_DEAD_AVERAGES, needs="late reader"),
    Place("channel.before_Disconnect", "cheap", needs="second attempt"),
    Place("channel.after_Disconnect", "cheap", needs="second attempt"),
    Place("channel.before_Deliver", "sink", 3, query="files"),
    Place("channel.after_Deliver", "sink", 4, query="files"),
    Place("channel.before_Trim"),
    Place("channel.after_Trim"),
    Place("channel.before_Remember", "sink", query="files"),
    Place("channel.after_Remember", "sink", query="files"),
    Place("node.after_claimed", "entry", query="entered"),
    Place("channel.before_Confirm", "entry", 2, query="entered"),
    Place("channel.after_Confirm", "entry", 3, query="entered"),
    Place("channel.before_Finish", "items"),
    Place("channel.after_Finish"),
    Place("writer.durable"),
)

_DRIVER = "coordinator"
DRIVER_PLACES = (
    Place("coordinator.registered", _DRIVER, 2),
    Place("coordinator.before_persist", _DRIVER, 2),
    Place("coordinator.after_persist", _DRIVER, 3),
    Place("coordinator.welcoming", _DRIVER, 4),
    Place("coordinator.lost_node", _DRIVER, after=_DEAD_AVERAGES),
    Place("coordinator.finished_node", _DRIVER, 2),
    Place("coordinator.stopping", _DRIVER),
)

# Those of every kind that `make test` has time for.
SAMPLE = frozenset(
    {
        "node.registered",
        "recovery.after_fencing",
        "recovery.replaying",
        "node.before_durable",
        "node.after_commit",
        "node.after_subscribed",
        "node.after_read_back",
        "channel.after_Append",
        "channel.before_Send",
        "channel.after_Disconnect",
        "channel.before_Confirm",
        "writer.durable",
        "coordinator.after_persist",
        "coordinator.finished_node",
    }
)


def fired(folder: Path) -> list[str]:
    """The points whose faults fired, in that order."""
    path = folder / FIRED_FILE
    return [line.split()[1] for line in path.read_text().splitlines()] if path.exists() else []


def table() -> str:
    """All places, one in a line: the point, whose, when, and what happens besides."""
    lines = []
    for place in NODE_PLACES + DRIVER_PLACES:
        after = "" if place.after is None else f"after {place.after.node} died"
        lines.append(
            f"{place.point:28} {place.query:9} {place.node:12} passing {place.hit:2}, life "
            f"{place.life}  {after or place.needs}".rstrip()
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())

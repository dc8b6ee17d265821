"""What must hold while a simulated run goes on, whatever fails.

The archive is what durable means: every frame that a node was told is durable, or that a later
attempt found in the log.  A frame in it never changes; two writers that both completed a frame with
the same sequence would be found here.  What the archive holds in the end is judged by an oracle
(`rewake.lab.simulation`), which must not live here: the engine's host cannot judge the engine.
"""

from __future__ import annotations

from rewake.graph.plan import Plan
from rewake.log.frame import Frame
from rewake.node.messages import Packet
from rewake.node.packets import packet_in
from rewake.sim.client import Client
from rewake.sim.disk import TimedLog


class Archive:
    """The durable frames of every node, by sequence, also those that were trimmed since."""

    def __init__(self, plan: Plan) -> None:
        self._epochs: dict[str, set[int]] = {}
        self.frames: dict[str, list[Frame]] = {each.name: [] for each in plan.nodes if each.logs}

    def durable(self, node: str, log: TimedLog, told: range, epoch: int) -> None:
        """An attempt was told that its frames with these sequences are durable: they must be."""
        kept = self.frames[node]
        self._take(node, log, len(kept))
        for sequence in told:
            assert sequence < len(kept), f"{node}: frame {sequence} is durable, but not to be seen"
            assert kept[sequence].epoch == epoch, (
                f"{node}: epoch {epoch} was told that frame {sequence} is durable, but that is one "
                f"of epoch {kept[sequence].epoch}"
            )

    def opened(self, node: str, log: TimedLog) -> None:
        """A new attempt has opened the log: what was durable must be there, unchanged."""
        kept = self.frames[node]
        assert log.next_sequence >= len(kept), (
            f"{node}: {len(kept)} frames were durable, but the log ends at {log.next_sequence}"
        )
        self._take(node, log, 0)

    def _take(self, node: str, log: TimedLog, first: int) -> None:
        kept = self.frames[node]
        for frame in log.frames_from(first):
            if frame.sequence < len(kept):
                _check_same(node, kept[frame.sequence], frame)
                continue
            assert frame.sequence == len(kept), f"{node}: frame {len(kept)} was never seen"
            kept.append(_owned(frame))

    def sent(self, node: str, end: int) -> None:
        """A node sends its output up to a position: all of it must be durable."""
        assert node not in self.frames or end <= self.tuples(node), (
            f"{node} sends positions up to {end}, but only {self.tuples(node)} are durable"
        )

    def welcomed(self, node: str, epoch: int) -> None:
        """An attempt was given an epoch: no other attempt of this node ever had it."""
        given = self._epochs.setdefault(node, set())
        assert epoch not in given, f"{node}: epoch {epoch} was given twice"
        given.add(epoch)

    def tuples(self, node: str) -> int:
        """How many result tuples a node has durably."""
        frames = self.frames[node]
        return frames[-1].position + frames[-1].tuples if frames else 0


def _owned(frame: Frame) -> Frame:
    """The frame with bytes of its own: a view into a buffer would keep all of it alive."""
    sections = tuple(
        section._replace(payload=memoryview(bytes(section.payload))) for section in frame.sections
    )
    return frame._replace(sections=sections)


def _check_same(node: str, known: Frame, found: Frame) -> None:
    same = known.sections == found.sections and known._replace(sections=()) == found._replace(
        sections=()
    )
    assert same, f"{node}: durable frame {known.sequence} was {known}, now it is {found}"


def check_client(archive: Archive, client: Client) -> None:
    """A client has received what the log holds, in order, and nothing else."""
    frames = archive.frames[client.node]
    packets = [packet_in(frame, client.output) for frame in frames]
    held = {each.end: each for each in packets if each is not None and each.end > each.start}
    at = 0
    for packet in client.packets:
        if packet.end == packet.start:
            continue
        known = held.get(packet.end)
        assert known is not None, f"{client.name} got {packet}, which is not in the log"
        assert packet.start == known.start == at, f"{client.name}: {at} does not lead to {packet}"
        assert bytes(packet.payload) == bytes(known.payload), f"{client.name} got other tuples"
        at = packet.end
    assert not client.finished or at == archive.tuples(client.node), f"{client.name} misses tuples"


def watermarks_of(packets: list[Packet]) -> list[tuple[int, int]]:
    """The watermarks that packets carry, with the position they stand at."""
    return [(each.end, each.watermark) for each in packets if each.watermark is not None]

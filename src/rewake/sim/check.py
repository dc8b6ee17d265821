"""What must hold while a simulated run goes on, whatever fails.

The archive is what durable means: every frame that a node was told is durable, or that a later
attempt found in the log.  A frame in it never changes; two writers that both completed a frame with
the same sequence would be found here.  What the archive holds in the end is judged by an oracle
(`rewake.drill.simulation`), which must not live here: the engine's host cannot judge the engine.
"""

from __future__ import annotations

from collections.abc import Iterable

from rewake.graph.plan.plan import Plan
from rewake.log.frame import Frame
from rewake.log.log import Log
from rewake.model.errors import ProducerSuperseded
from rewake.node.channels.packets import packet_in
from rewake.node.channels.producers import producers_of
from rewake.recovery.approach import Kept
from rewake.sim.clients.client import Client
from rewake.sim.clients.producer import Producer
from rewake.sim.disk import Disk, TimedLog


class Archive:
    """The durable frames of every node, by sequence, also those that were trimmed since."""

    def __init__(self, plan: Plan) -> None:
        # Sequences that an attempt was told are durable and nobody has seen yet, with its epoch.
        self._told: dict[str, dict[int, int]] = {each.name: {} for each in plan.nodes}
        self._epochs: dict[str, set[int]] = {}
        self.frames: dict[str, list[Frame]] = {
            each.name: [] for each in plan.nodes if each.kept is Kept.IN_LOG
        }

    def durable(self, node: str, log: TimedLog, told: range, epoch: int) -> None:
        """An attempt was told that its frames with these sequences are durable: they must be.

        On a full disk the mark may lag: then they are to be seen later.
        """
        self._told[node].update(dict.fromkeys(told, epoch))
        self._take(node, log, len(self.frames[node]))

    def opened(self, node: str, log: TimedLog) -> None:
        """A new attempt has opened the log: what was durable must be there, unchanged."""
        durable = max([len(self.frames[node]) - 1, *self._told[node]]) + 1
        assert log.next_sequence >= durable, (
            f"{node}: {durable} frames were durable, but the log ends at {log.next_sequence}"
        )
        self._take(node, log, 0)

    def _take(self, node: str, log: TimedLog, first: int) -> None:
        self._adopt(node, log.frames_from(first))

    def _adopt(self, node: str, frames: Iterable[Frame]) -> None:
        kept = self.frames[node]
        for frame in frames:
            if frame.sequence < len(kept):
                _check_same(node, kept[frame.sequence], frame)
                continue
            assert frame.sequence == len(kept), f"{node}: frame {len(kept)} was never seen"
            kept.append(_owned(frame))
        self._check_told(node)

    def _check_told(self, node: str) -> None:
        """Who was told that its frame is durable finds that frame, and not another writer's."""
        kept, told = self.frames[node], self._told[node]
        for sequence in [each for each in told if each < len(kept)]:
            epoch = told.pop(sequence)
            assert kept[sequence].epoch == epoch, (
                f"{node}: epoch {epoch} was told that frame {sequence} is durable, but that is one "
                f"of epoch {kept[sequence].epoch}"
            )

    def complete(self, node: str, disk: Disk) -> None:
        """At the end: what a lagging mark hides is seen by whoever opens the log next."""
        if self._told[node]:
            copy = disk.store.killed()
            Log.open_for_append(copy)
            self._adopt(node, Log.open_reader(copy).frames(from_sequence=len(self.frames[node])))

    def sent(self, node: str, end: int) -> None:
        """A node sends its output up to a position: all of it must be durable."""
        if node in self.frames and not self._told[node]:
            durable = self.tuples(node)
            assert end <= durable, f"{node} sends up to {end}, but only {durable} is durable"

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


def check_producer(archive: Archive, producer: Producer) -> None:
    """A producer that lives to the end of the query knows that all it sent is durable."""
    if not producer.alive or producer.script.entry not in archive.frames:
        return
    frames = archive.frames[producer.script.entry]
    outbox = producer.outbox
    outbox.over(producers_of(reversed(frames))[0])
    try:
        outbox.check()
    except ProducerSuperseded:
        return
    assert outbox.empty, f"{producer.name} does not know what became of what it sent"
    assert outbox.acknowledged == outbox.position, f"{producer.name} was told too little"

"""Judging a simulated run: what every node has durably must be what plain Python says.

From the sources on, node by node: the content of a node's input channels is known; the order in
which they met is what the determinants in its log say; the oracle says what must come out; the
frames that ever were durable say what did.  Nothing of this is the engine's own opinion, but for
the columns of batches and the order of merged channels, which chance decides.

What is found: lost, duplicated, reordered or wrong tuples, in logs and in sinks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from rewake.drill.simulated_answers import ByPort, Came, Row, expected
from rewake.graph.plan.plan import NodePlan
from rewake.log.columns import unpack_columns
from rewake.log.frame import Frame, SectionKind
from rewake.model.stream_event import END_OF_TIME, NO_TIME, StreamEvent
from rewake.node.channels.packets import event_of, packet_in, punctuation_in
from rewake.node.protocols.forgetful import POSITIONS_PER_LIFE
from rewake.operators.stateful import FURTHER_PORTS, RESULTS_PORT
from rewake.oracle.aggregates import Punctuation
from rewake.recovery.approach import Kept
from rewake.sim.cluster import Cluster, Kinds
from rewake.sim.operator_scenarios import CLOCKED, PROCESSED
from rewake.sim.run import Outcome, run_seed
from rewake.sim.scenarios import Scenario


@dataclass(frozen=True, slots=True)
class _Piece:
    """A stream event as the oracle knows it."""

    start: int
    end: int
    rows: list[Row]
    watermark: int | None

    @property
    def position(self) -> int:
        """Of the first row: rows are at the last of the positions covered."""
        return self.end - len(self.rows)


def simulate(
    seed: int, *, kinds: Kinds | None = None, listener: Callable[[str], None] | None = None
) -> Outcome:
    """Run one seed and judge it."""
    return run_seed(seed, judge, kinds=kinds, listener=listener)


def judge(scenario: Scenario, cluster: Cluster) -> dict[str, int]:
    """Compare everything with the oracle; how much was compared.  AssertionError: what differs."""
    return _Judge(scenario, cluster).run()


class _Judge:
    def __init__(self, scenario: Scenario, cluster: Cluster) -> None:
        self._scenario = scenario
        self._frames = cluster.archive.frames
        self._producers = cluster.producers
        self._lives = cluster.lives.took
        self._content: dict[tuple[str, int], list[_Piece]] = {}
        # What each life of a node under amnesia must have put out, by node and epoch.
        self._forgetting: dict[str, dict[int, list[Row]]] = {}
        self.checked = {"tuples in": scenario.tuples, "results": 0, "sink tuples": 0, "nodes": 0}

    def run(self) -> dict[str, int]:
        nodes = self._scenario.plan.nodes
        # What is kept is known before anything else is, for streams may come back.
        for node in nodes:
            if node.kept is Kept.IN_LOG:
                self._read_log(node)
        for node in nodes:
            if node.inputs[0].produced:
                self._check_entry()
                continue
            if any(each.upstream in self._forgetting for each in node.inputs):
                self._check_remembered(node)
                continue
            channels = [self._channel(node, number) for number in range(len(node.inputs))]
            if node.sink is not None:
                self._check_sink(node, channels)
            elif node.kept is Kept.IN_LOG:
                self._check_log(node, channels)
            elif node.kept is Kept.NOWHERE:
                self._forgetting[node.name] = self._expect_of_lives(node, channels)
            elif (node.name, 0) not in self._content:
                self._derive(node, channels[0])
            self._count_checks(node)
            self.checked["nodes"] += 1
        for step, comes_back in self._scenario.comes_back.items():
            self._check_loop(step, comes_back)
        return self.checked

    def _channel(self, node: NodePlan, number: int) -> list[_Piece]:
        plan = node.inputs[number]
        if plan.upstream is not None:
            if (plan.upstream, plan.output) not in self._content:
                upstream = self._scenario.plan.node(plan.upstream)
                self._derive(upstream, self._channel(upstream, 0))
            pieces = self._content[plan.upstream, plan.output]
            return [replace(each, watermark=None) for each in pieces] if plan.late else pieces
        source = self._scenario.sources[plan.name]
        return [_piece(event) for event in source.shards[node.shard]]

    # --- what a node makes of its input --------------------------------------------------------

    def _steps(self, names: Iterable[str], rows: list[Row]) -> list[Row]:
        for name in names:
            if name in self._scenario.predicates:
                rows = [row for row in rows if self._scenario.predicates[name](row)]
            elif name in self._scenario.several:
                rows = [each for row in rows for each in self._scenario.several[name](row)]
            else:
                rows = [self._scenario.maps[name](row) for row in rows]
        return rows

    def _derive(self, node: NodePlan, pieces: list[_Piece]) -> None:
        """The output of a node that keeps nothing: its input, event by event."""
        schema = node.inputs[0].schema
        names = [step.name for step in node.program.steps]
        outputs: list[list[_Piece]] = [[] for _ in node.outputs]
        for piece in pieces:
            batch = pa.RecordBatch.from_pylist(piece.rows, schema)
            parts = dict(node.program.apply(batch, piece.end - piece.start))
            for output, collected in enumerate(outputs):
                rows = parts[output].to_pylist() if output in parts else []
                collected.append(_Piece(piece.start, piece.end, rows, piece.watermark))
        for output, collected in enumerate(outputs):
            self._content[node.name, output] = collected
        wanted = self._steps(names, [row for piece in pieces for row in piece.rows])
        self._check_outputs(node, self._divided(node, wanted))

    def _check_entry(self) -> None:
        """In which order producers met is chance; each wrote every position once, in order.

        What a producer was told to be durable is its own, and nobody else's under its name.
        """
        places = self._scenario.plan.streams["stream-entry"]
        rows = [row for place in places for piece in self._content[place] for row in piece.rows]
        for script in self._scenario.producers:
            mine = [row for row in rows if row["k"] == script.number]
            found = [row["v"] for row in mine]
            assert found == list(range(script.tuples)), f"{script.name} wrote {found}"
            for each in self._producers:
                if each.script is script and each.first is not None:
                    told = {row["t"] for row in mine[each.first : each.outbox.acknowledged]}
                    assert told <= {each.life}, f"{each.name} was told of what {told} wrote"
            self.checked["results"] += len(mine)
        self.checked["nodes"] += 1

    def _read_log(self, node: NodePlan) -> None:
        for output, plan in enumerate(node.outputs):
            packets = [
                packet for frame in self._frames[node.name] if (packet := packet_in(frame, output))
            ]
            self._content[node.name, output] = [
                _piece(event_of(packet, plan.schema)) for packet in packets
            ]

    def _check_log(self, node: NodePlan, channels: list[list[_Piece]]) -> None:
        frames = self._frames[node.name]
        if node.fragment == CLOCKED:
            self._check_counts(node, channels)
            return
        came = _merged(node, channels, frames, partial(self._before, node))
        wanted = expected(node, came)
        wanted[RESULTS_PORT] = self._steps(
            [step.name for step in node.program.after], wanted[RESULTS_PORT]
        )
        if node.program.split is not None:
            wanted = self._divided(node, wanted[RESULTS_PORT])
        self._check_outputs(node, wanted)

    def _before(self, node: NodePlan, rows: list[Row]) -> list[Row]:
        return self._steps([step.name for step in node.program.before], rows)

    def _divided(self, node: NodePlan, rows: list[Row]) -> ByPort:
        """By the first predicate of a split that holds, or all as results."""
        if node.program.split is None:
            return {RESULTS_PORT: rows}
        predicates = self._scenario.splits[node.program.split.name]
        wanted: ByPort = {FURTHER_PORTS + port: [] for port in range(len(predicates) + 1)}
        for row in rows:
            holding = [port for port, holds in enumerate(predicates) if holds(row)]
            wanted[FURTHER_PORTS + min(holding, default=len(predicates))].append(row)
        return wanted

    def _check_loop(self, step: str, comes_back: Callable[[Row], list[Row]]) -> None:
        """Everything that entered has gone around as often as it had to, whenever it did."""
        entrances = [node for node in self._scenario.plan.nodes if node.fragment == step]
        outside = [
            row
            for node in entrances
            for number, each in enumerate(node.inputs)
            if not each.inside
            for piece in self._channel(node, number)
            for row in piece.rows
        ]
        wanted: Counter[tuple[Any, ...]] = Counter()
        while outside:
            row = outside.pop()
            wanted[tuple(row.values())] += 1
            outside += comes_back(row)
        found: Counter[tuple[Any, ...]] = Counter()
        for node in entrances:
            outputs = next(iter(_divisions(node).values()))
            for output in outputs:
                for piece in self._content[node.name, output]:
                    found.update(tuple(row.values()) for row in piece.rows)
        assert found == wanted, f"{step}: {wanted - found} did not go around, {found - wanted} did"
        self.checked["results"] += found.total()

    def _check_counts(self, node: NodePlan, channels: list[list[_Piece]]) -> None:
        """When the clock let counts go is chance, but every tuple is counted once."""
        expected = Counter(
            row["k"] for pieces in channels for piece in pieces for row in piece.rows
        )
        for outputs in _divisions(node).values():
            found: Counter[int] = Counter()
            for output in outputs:
                for piece in self._content[node.name, output]:
                    for row in piece.rows:
                        found[row["k"]] += row["n"]
            assert found == expected, f"{node.name}: counted {found}, not {expected}"
            self.checked["results"] += len(found)

    # --- promises and amnesia ------------------------------------------------------------------

    def _count_checks(self, node: NodePlan) -> None:
        """How many frames hold CHECKs because a time was promised."""
        if "recover_within" in node.approach.settings():
            for frame in self._frames.get(node.name, ()):
                found = frame.section(SectionKind.CHECKS) is not None
                self.checked["frames with CHECKs"] = (
                    self.checked.get("frames with CHECKs", 0) + found
                )

    def _expect_of_lives(
        self, node: NodePlan, channels: list[list[_Piece]]
    ) -> dict[int, list[Row]]:
        """By epoch, what the oracle makes of what that life took alone."""
        wanted: dict[int, list[Row]] = {}
        for (name, epoch), taken in self._lives.items():
            if name == node.name:
                rows = [row for each in taken for row in _stretch(channels, *each)]
                came: list[Came] = [(0, row) for row in self._before(node, rows)]
                wanted[epoch] = expected(node, came)[RESULTS_PORT]
        return wanted

    def _check_remembered(self, node: NodePlan) -> None:
        """Behind amnesia: each tuple stands where its life has put it, and comes once, in order."""
        sink = self._scenario.sinks[node.fragment]
        for number, plan in enumerate(node.inputs):
            assert plan.upstream is not None
            lives, reached = self._forgetting[plan.upstream], 0
            for event in sink.committed.get(number, []):
                rows = event.batch.to_pylist()
                at = event.end - len(rows)
                assert not rows or at >= reached, f"{node.name} got {at} when it had {reached}"
                reached = event.end
                epoch, place = divmod(at, POSITIONS_PER_LIFE)
                wanted = lives.get(epoch, [])[place : place + len(rows)]
                _compare(f"{node.name} behind epoch {epoch} of {plan.upstream}", rows, wanted)
                self.checked["sink tuples"] += len(rows)

    # --- comparing -----------------------------------------------------------------------------

    def _check_outputs(self, node: NodePlan, wanted: ByPort) -> None:
        """Every division of a port has every tuple once, in order, and each key in one part."""
        for (port, keys, _), outputs in _divisions(node).items():
            rows = wanted[port]
            owner: dict[tuple[Any, ...], int] = {}
            total = 0
            for output in outputs:
                found = [row for piece in self._content[node.name, output] for row in piece.rows]
                for row in found:
                    key = tuple(row[name] for name in keys or ())
                    assert owner.setdefault(key, output) == output, f"{node.name}: {key} is in two"
                mine = [row for row in rows if _owner(owner, row, keys) == output]
                if node.fragment == PROCESSED:
                    # Keys that come together are called in an order of their own.
                    found, mine = (sorted(each, key=lambda row: row["k"]) for each in (found, mine))
                _compare(f"{node.name} output {output}", found, mine)
                total += len(found)
            assert total == len(rows), f"{node.name}: {len(rows) - total} tuples are lost"
            self.checked["results"] += total

    def _check_sink(self, node: NodePlan, channels: list[list[_Piece]]) -> None:
        sink = self._scenario.sinks[node.fragment]
        for channel, pieces in enumerate(channels):
            events = sink.committed.get(channel, [])
            found = [row for event in events for row in event.batch.to_pylist()]
            wanted = [row for piece in pieces for row in piece.rows]
            _compare(f"{node.name} channel {channel}", found, wanted)
            self.checked["sink tuples"] += len(found)


def _owner(owner: dict[tuple[Any, ...], int], row: Row, keys: Sequence[str] | None) -> int | None:
    return owner.get(tuple(row[name] for name in keys or ()))


def _piece(event: StreamEvent) -> _Piece:
    return _Piece(event.start, event.end, event.batch.to_pylist(), event.watermark)


def _stretch(channels: list[list[_Piece]], channel: int, first: int, end: int) -> list[Row]:
    """The rows of a channel between two positions."""
    found: list[Row] = []
    for piece in channels[channel]:
        start, stop = max(first, piece.start), min(end, piece.end)
        if start < stop:
            found += piece.rows[max(start - piece.position, 0) : max(stop - piece.position, 0)]
    return found


def _divisions(node: NodePlan) -> dict[tuple[int, Any, int], list[int]]:
    """The outputs that a port is divided over, by port and how."""
    found: dict[tuple[int, Any, int], list[int]] = {}
    for output, route in enumerate(node.program.routes):
        found.setdefault((route.port, route.keys, route.parts), []).append(output)
    return found


def _merged(
    node: NodePlan,
    channels: list[list[_Piece]],
    frames: list[Frame],
    before: Callable[[list[Row]], list[Row]],
) -> list[Came]:
    """The input of a node in the order it was consumed, with the watermarks that it heard.

    Rows come with the number of their input.  What a node passes on some time behind, because its
    results are, is told as it came.
    """
    delay = _delay(node)
    marks = {at: _undelayed(mark, delay) for at, mark in _passed(frames).items()}
    if len(channels) == 1:
        heard = _rising((piece.end, piece.watermark) for piece in channels[0])
        if END_OF_TIME not in heard.values():
            heard[channels[0][-1].end if channels[0] else 0] = END_OF_TIME
        told = {at: mark for at, mark in heard.items() if delay is not None or mark == END_OF_TIME}
        assert marks == told, f"{node.name}: passed on the watermarks {marks}, not {told}"
        marks = heard
    stream: list[Came] = []
    at = 0
    for channel, first, end in _order(node, channels, frames):
        for piece in channels[channel]:
            start, stop = max(first, piece.start), min(end, piece.end)
            if start >= stop:
                continue
            rows = piece.rows[max(start - piece.position, 0) : max(stop - piece.position, 0)]
            stream += [(node.inputs[channel].port, row) for row in before(rows)]
            at += stop - start
            if at in marks:
                stream.append(Punctuation(marks.pop(at)))
    stream += [Punctuation(watermark) for _, watermark in sorted(marks.items())]
    return stream


def _delay(node: NodePlan) -> int | None:
    """How far a node's results are behind its time; None: until the end of time."""
    if node.program.stateful is None:
        return 0
    operator = node.program.operator(*node.input_schemas)
    return operator.delay


def _undelayed(mark: int, delay: int | None) -> int:
    return mark if mark == END_OF_TIME else mark + (delay or 0)


def _passed(frames: list[Frame]) -> dict[int, int]:
    """The watermarks in a log, by the input position they stand at."""
    return _rising((frame.t_end + 1, punctuation_in(frame)) for frame in frames)


def _rising(marks: Iterable[tuple[int, int | None]]) -> dict[int, int]:
    """Of watermarks at positions, those that rise; the highest at each position."""
    rising: dict[int, int] = {}
    highest = NO_TIME
    for position, watermark in marks:
        if watermark is not None and watermark > highest:
            highest = rising[position] = watermark
    return rising


def _order(
    node: NodePlan, channels: list[list[_Piece]], frames: list[Frame]
) -> list[tuple[int, int, int]]:
    """The stretches (channel, first, end) in the order they were consumed: all of every channel."""
    ends = [pieces[-1].end if pieces else 0 for pieces in channels]
    if len(channels) == 1:
        return [(0, 0, ends[0])]
    order: list[tuple[int, int, int]] = []
    reached = [0] * len(channels)
    for frame in frames:
        payload = frame.section(SectionKind.DETERMINANTS)
        assert payload is not None, f"{node.name}: frame {frame.sequence} has no determinants"
        columns = unpack_columns(payload)
        for channel, first, span in zip(*(column.tolist() for column in columns[:3]), strict=True):
            assert first == reached[channel], (
                f"{node.name}: channel {channel} is consumed from {first}, not {reached[channel]}"
            )
            reached[channel] = first + span
            order.append((channel, first, first + span))
    # What left no frame behind was consumed in an order that changed nothing.
    order += [(number, at, ends[number]) for number, at in enumerate(reached)]
    return order


def _compare(where: str, found: list[Row], wanted: list[Row]) -> None:
    if found == wanted:
        return
    for number, (one, other) in enumerate(zip(found, wanted, strict=False)):
        assert one == other, f"{where}: tuple {number} is {one}, not {other}"
    assert len(found) >= len(wanted), f"{where}: lost, beginning with {wanted[len(found)]}"
    raise AssertionError(f"{where}: too many, beginning with {found[len(wanted)]}")

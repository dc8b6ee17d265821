"""`rewake inspect`: what it shows of a log, whole or damaged, and that it changes nothing."""

import json
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from log_vocabulary import sample_turn
from typer.testing import CliRunner

from rewake.cli.app import app, main
from rewake.connectors.item_stream import SCHEMA, ItemStream
from rewake.log.files.layout import segment_id
from rewake.model.stream_event import END_OF_TIME, StreamEvent, no_tuples
from rewake.operators.aggregate.functions import Avg
from rewake.operators.aggregate.operator import Aggregate, AggregateSpec
from rewake.operators.windows.specs import count_window, session_window, time_window
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.policies.targets import TargetsPolicy
from rewake.stores import create_log, open_log_reader, open_log_writer

STREAM = ItemStream(7, 60, 6)
SPEC = AggregateSpec(
    by=["item_id"], window=count_window(10), aggregates=[Avg("item_price")], time="item_time"
)
METADATA: dict[str, str | bytes] = {
    "schema": Aggregate(SPEC, SCHEMA).output_schema.serialize().to_pybytes(),
    "operator": json.dumps(SPEC.describe()),
}
TURN_TUPLES = 100
TURNS = 40


def approach() -> ContinuousEventualCheckpointing:
    """A small aggregate whose policy leaves CHECKs."""
    policy = TargetsPolicy(records=200, tuples=500)
    return ContinuousEventualCheckpointing(Aggregate(SPEC, SCHEMA), policy)


def write(paths: Path | Sequence[Path], metadata: dict[str, str | bytes]) -> None:
    """Create a log of `TURNS` turns."""
    create_log(paths, "items", metadata)
    running = approach()
    with open_log_writer(paths) as writer:
        for turn in range(TURNS):
            start = turn * TURN_TUPLES
            record = running.turn(STREAM.event(start, start + TURN_TUPLES), float(start)).record
            assert record is not None
            writer.append(record)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that no test changes."""
    path = tmp_path_factory.mktemp("original") / "log"
    write(path, METADATA)
    return path


@pytest.fixture
def log(original: Path, tmp_path: Path) -> Path:
    """A log of one's own, without the lock file that a writer leaves."""
    path = tmp_path / "log"
    shutil.copytree(original, path)
    (path / "lock").unlink()
    return path


def inspect(*words: object, columns: int = 140) -> tuple[int, str]:
    """Exit code and output of `rewake inspect ...`; errors are raised."""
    runner = CliRunner(env={"COLUMNS": str(columns)})  # whoever runs the tests may set another
    result = runner.invoke(app, ["inspect", *map(str, words)], catch_exceptions=False)
    return result.exit_code, result.output


def inspected(*words: object) -> dict[str, Any]:
    """What `--json` says."""
    found = json.loads(inspect(*words, "--json")[1])
    assert isinstance(found, dict)
    return found


def segment_of(log: Path) -> Path:
    """The one segment of a log."""
    (segment,) = (path for path in log.iterdir() if segment_id(path.name))
    return segment


def flip(path: Path, offset: int) -> None:
    """Damage one bit."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Names, times of change and bytes of all that is in a folder, and of the folder itself."""
    paths = [folder, *sorted(folder.rglob("*"))]
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in paths
    }


COMMANDS = [
    ("log",),
    ("log", "--json"),
    ("log", "--sections", "--from", "0"),
    ("checkpoint",),
    ("checkpoint", "--json"),
]


# --- inspect log -------------------------------------------------------------------------------


def test_the_last_frames_are_shown_with_what_there_is_in_all(log: Path) -> None:
    """A large log does not flood the terminal."""
    code, output = inspect("log", log)
    rows = [line.split() for line in output.splitlines()]
    shown = [int(row[0]) for row in rows if row and row[0].isdigit() and len(row) == 12]
    assert code == 0
    assert shown == list(range(20, 40))
    assert "20 of 40 frames" in output
    assert "every one is right" in output


def test_the_facts_are_those_of_the_log(log: Path) -> None:
    """Every number is compared with what a reader of the log finds."""
    found = inspected("log", log, "--last", 1000)
    with open_log_reader(log) as reader:
        frames = list(reader.frames())
        assert found["log_id"] == f"{reader.descriptor.log_id:016x}"
    assert (found["ok"], found["name"], found["stripes"], found["epoch"]) == (True, "items", 1, 0)
    assert (found["first_sequence"], found["end_sequence"], found["durable"]) == (0, TURNS, TURNS)
    assert found["torn_bytes"] == 0
    assert found["bytes"] == sum(frame.length for frame in frames)
    assert found["operator"] == SPEC.describe()
    names = ["sequence", "position", "t_end", "timestamp", "open_windows", "records", "offset"]
    for shown, frame in zip(found["frames"], frames, strict=True):
        assert [shown[name] for name in names] == [getattr(frame, name) for name in names]
        assert shown["opens"] + shown["checks"] + shown["tuples"] == frame.records


def test_the_extent_is_what_recovery_reads(log: Path) -> None:
    """The frames and records that an eventual checkpoint needs, no more."""
    needed = inspected("log", log)["extent"]
    running = approach()
    for start in range(0, TURNS * TURN_TUPLES, TURN_TUPLES):
        running.turn(STREAM.event(start, start + TURN_TUPLES), float(start))
    assert needed["frames"] == running.frames_needed
    assert running.extent().records <= needed["records"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--last", 3], [37, 38, 39]),
        (["--last", 0], []),
        (["--from", 5], list(range(5, 25))),
        (["--from", 5, "--to", 7], [5, 6, 7]),
        (["--from", 38], [38, 39]),
        (["--from", 99], []),
    ],
)
def test_the_chosen_frames_are_shown(log: Path, options: list[object], expected: list[int]) -> None:
    """By number from the end, or by sequence."""
    frames = inspected("log", log, *options)["frames"]
    assert [frame["sequence"] for frame in frames] == expected


def test_sections_show_the_results_decoded(log: Path) -> None:
    """With the schema that the log's metadata carries."""
    (frame,) = inspected("log", log, "--from", 30, "--to", 30, "--sections")["frames"]
    results = next(each for each in frame["sections"] if each["kind"] == "RESULTS")
    assert len(results["rows"]) == frame["tuples"]
    assert set(results["rows"][0]) == {"item_id", "avg_item_price"}
    output = inspect("log", log, "--from", 30, "--to", 30, "--sections")[1]
    assert f"item_id={results['rows'][0]['item_id']}" in output


def test_a_log_that_says_nothing_about_itself_is_shown_all_the_same(tmp_path: Path) -> None:
    """Metadata is welcome, not necessary."""
    create_log(tmp_path / "log", "plain")
    with open_log_writer(tmp_path / "log") as writer:
        for number in range(3):
            writer.append(sample_turn(number))
    code, output = inspect("log", tmp_path / "log", "--sections")
    assert code == 0
    assert "RESULTS" in output
    found = inspected("log", tmp_path / "log", "--sections")
    assert found["operator"] is None
    assert [section["rows"] for section in found["frames"][0]["sections"]] == [None, None]


def test_an_empty_log_is_whole(tmp_path: Path) -> None:
    """It was created, and nobody has written yet."""
    create_log(tmp_path / "log", "empty")
    code, output = inspect("log", tmp_path / "log")
    assert code == 0
    assert "No frames" in output
    assert inspect("checkpoint", tmp_path / "log")[0] == 0


def test_several_paths_are_the_stripes_of_one_log(tmp_path: Path) -> None:
    """All of their frames are shown, in order."""
    paths = [tmp_path / "a", tmp_path / "b"]
    write(paths, METADATA)
    found = inspected("log", *paths, "--last", 1000)
    assert (found["stripes"], found["ok"]) == (2, True)
    assert [frame["sequence"] for frame in found["frames"]] == list(range(TURNS))
    assert inspected("checkpoint", *paths)["windows"] == found["frames"][-1]["open_windows"]


def test_a_torn_tail_is_no_damage(log: Path) -> None:
    """A crash may leave it; nothing that was durable is in it."""
    with segment_of(log).open("ab") as file:
        file.write(b"RWKF" + bytes(60))
    code, output = inspect("log", log)
    assert code == 0
    assert "64 bytes behind the end" in output
    assert inspected("log", log)["torn_bytes"] == 64


# --- damage ------------------------------------------------------------------------------------


@pytest.fixture
def damaged(log: Path) -> tuple[Path, dict[str, Any]]:
    """A log with a flipped bit in frame 25, and the facts of that frame."""
    (frame,) = inspected("log", log, "--from", 25, "--to", 25)["frames"]
    flip(segment_of(log), frame["offset"] + 200)
    return log, frame


def test_damage_is_shown_with_its_place_and_what_can_be_saved(
    damaged: tuple[Path, dict[str, Any]],
) -> None:
    """Segment, byte and sequence; exit code 1, and the report is printed."""
    log, frame = damaged
    code, output = inspect("log", log)
    assert code == 1
    assert "The log is damaged" in output
    assert str(segment_of(log)) in output
    assert f"byte {frame['offset']:,}" in output
    assert "sequence 25" in output
    assert "before    25 frames are whole" in output
    assert "after     14 frames are whole" in output
    assert "restore" in output
    assert "1 missing" in output


def test_a_program_learns_the_same_about_damage(damaged: tuple[Path, dict[str, Any]]) -> None:
    """Frames on both sides of it are there."""
    log, frame = damaged
    found = inspected("log", log, "--last", 1000)
    assert found["ok"] is False
    damage = found["damage"]
    assert (damage["offset"], damage["sequence"]) == (frame["offset"], 25)
    assert (damage["frames_before"], damage["frames_after"]) == (25, 14)
    shown = [frame["sequence"] for frame in found["frames"]]
    assert shown == [*range(25), *range(26, 40)]


def test_old_damage_does_not_hide_the_checkpoint(damaged: tuple[Path, dict[str, Any]]) -> None:
    """Recovery reads its extent, and so does the inspection."""
    log, _ = damaged
    assert "recovery  works" in inspect("log", log)[1]
    assert inspect("checkpoint", log)[0] == 0


def run_main(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object
) -> tuple[int, str, str]:
    """Run the command line with its handling of errors: exit code, stdout, stderr."""
    monkeypatch.setattr("sys.argv", ["rewake", "inspect", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the whole command line."""
    return lambda *words: run_main(monkeypatch, capsys, *words)


def test_damage_in_the_extent_is_an_error_for_the_checkpoint(log: Path, run: Run) -> None:
    """There is no checkpoint to show; the report of the log is still printed."""
    (frame,) = inspected("log", log, "--last", 1)["frames"]
    flip(segment_of(log), frame["offset"] + 200)
    code, out, err = run("checkpoint", log)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    code, output = inspect("log", log)
    assert code == 1
    assert "recovery  is refused" in output


def test_a_damaged_descriptor_is_reported(log: Path) -> None:
    """Nothing else can be said then, but that much is."""
    flip(log / "LOG", 40)
    code, output = inspect("log", log)
    assert code == 1
    assert "restore" in output
    assert inspected("log", log)["damage"]["segment"] == "LOG"


# --- what is no log ----------------------------------------------------------------------------


def test_a_missing_path_is_a_usage_error(tmp_path: Path, run: Run) -> None:
    """Exit code 2, and the path in the message."""
    for command in ("log", "checkpoint"):
        code, out, err = run(command, tmp_path / "nowhere")
        assert (code, out) == (2, "")
        assert str(tmp_path / "nowhere") in err


def test_a_folder_without_a_log_is_a_usage_error(tmp_path: Path, run: Run) -> None:
    """And it is left without one."""
    code, _, err = run("log", tmp_path)
    assert code == 2
    assert str(tmp_path) in err
    assert list(tmp_path.iterdir()) == []


def test_a_log_just_below_the_path_is_pointed_at(log: Path, run: Run) -> None:
    """The likeliest mistake has the shortest remedy."""
    code, _, err = run("log", log.parent)
    assert (code, err) == (2, f"error: {log.parent} is not a log, but {log} is one\n")


def test_of_a_querys_folder_its_logs_are_listed(log: Path, tmp_path: Path, run: Run) -> None:
    """Also of the folder between: which of them is meant, nobody can guess."""
    folder = tmp_path / "orders"
    logs = [folder / "nodes" / name for name in ("averages", "filtered")]
    for each in logs:
        shutil.copytree(log, each)
    (folder / "coordinator.json").write_text("{}")
    listed = f"{logs[0]}, {logs[1]}"
    for what in ("log", "checkpoint"):
        code, _, err = run(what, folder)
        assert code == 2
        assert err.startswith(f"error: {folder} is the folder of a query, not a log; its logs are ")
        assert listed in err
    code, _, err = run("log", folder / "nodes")
    assert (code, err) == (2, f"error: {folder / 'nodes'} is not a log, but these are: {listed}\n")


def test_a_query_without_logs_is_told_from_a_folder_without_a_log(tmp_path: Path, run: Run) -> None:
    """There is nothing to look for below it."""
    (tmp_path / "coordinator.json").write_text("{}")
    code, _, err = run("log", tmp_path)
    assert code == 2
    assert "is the folder of a query, not a log; it keeps no logs" in err


def test_another_version_is_a_usage_error(log: Path, run: Run) -> None:
    """Nothing is guessed about what a newer program wrote."""
    data = bytearray((log / "LOG").read_bytes())
    data[4] = 9
    (log / "LOG").write_bytes(data)
    code, out, err = run("log", log)
    assert (code, out) == (2, "")
    assert "version 9" in err


@pytest.mark.parametrize("options", [["--last", 3, "--from", 1], ["--to", 3], ["--last", -1]])
def test_options_that_contradict_each_other_are_refused(
    log: Path, run: Run, options: list[object]
) -> None:
    """Exit code 2, before anything is read."""
    assert run("log", log, *options)[0] == 2


# --- inspect checkpoint ------------------------------------------------------------------------


def test_the_checkpoint_is_the_one_that_recovery_loads(log: Path) -> None:
    """Every number is compared with a real recovery."""
    found = inspected("checkpoint", log, "--windows", 1000)
    with open_log_reader(log) as reader:
        recovered = ContinuousEventualCheckpointing.recover(
            Aggregate(SPEC, SCHEMA),
            TargetsPolicy(records=200, tuples=500),
            reader.frames_backwards(),
        )
    assert found["windows"] == recovered.operator.open_parts
    assert found["from_open"] + found["from_check"] == found["windows"]
    assert found["from_check"] > 0
    assert found["replay_from"] == recovered.position
    assert found["time"] == TURNS * TURN_TUPLES - 1
    assert found["tuples_to_replay"] == found["time"] - found["oldest_time"]
    assert found["clock"] == recovered.operator.clock
    ids = {int(number) for number in recovered.operator.opened_at if number >= 0}
    assert {window["id"] for window in found["oldest"]} == ids


def test_an_ended_stream_is_said_to_have_ended(tmp_path: Path) -> None:
    """Not to be at a time so far away that it stands for the end."""
    spec = AggregateSpec(["item_id"], time_window("1s"), [Avg("item_price")], time="item_time")
    operator = Aggregate(spec, SCHEMA)
    metadata = METADATA | {
        "schema": operator.output_schema.serialize().to_pybytes(),
        "operator": json.dumps(spec.describe()),
    }
    create_log(tmp_path / "log", "items", metadata)
    running = ContinuousEventualCheckpointing(operator, TargetsPolicy(records=200, tuples=500))
    with open_log_writer(tmp_path / "log") as writer:
        ended = StreamEvent(TURN_TUPLES, no_tuples(SCHEMA), END_OF_TIME)
        for event in (STREAM.event(0, TURN_TUPLES), ended):
            record = running.turn(event, 0.0).record
            assert record is not None
            writer.append(record)
    assert inspected("checkpoint", tmp_path / "log")["clock"] == "ended"
    for command in ("log", "checkpoint"):
        shown = inspect(command, tmp_path / "log")[1]
        assert "ended" in shown
        assert str(2**62) not in shown


def test_each_window_has_the_key_of_the_tuple_that_opened_it(log: Path) -> None:
    """A window's id is a position in the input, so the input says which key it is."""
    for window in inspected("checkpoint", log, "--windows", 1000)["oldest"]:
        (row,) = STREAM.rows(window["id"], window["id"] + 1)
        assert window["key"] == {"item_id": row["item_id"]}


def test_open_sessions_are_told_by_their_key_and_first_tuple(tmp_path: Path) -> None:
    """A part is a key with all of its sessions, however many a footprint holds."""
    window = session_window("300us")
    spec = AggregateSpec(["item_id"], window, [Avg("item_price")], time="item_time", slack="1ms")
    operator = Aggregate(spec, SCHEMA)
    metadata = METADATA | {
        "schema": operator.output_schema.serialize().to_pybytes(),
        "operator": json.dumps(spec.describe()),
    }
    create_log(tmp_path / "log", "items", metadata)
    running = ContinuousEventualCheckpointing(operator, TargetsPolicy(records=200, tuples=500))
    with open_log_writer(tmp_path / "log") as writer:
        for start in range(0, 400, 10):
            record = running.turn(STREAM.event(start, start + 10), float(start)).record
            if record is not None:
                writer.append(record)
    found = inspected("checkpoint", tmp_path / "log", "--windows", 1000)
    ids = {int(number) for number in operator.opened_at if number >= 0}
    assert {each["id"] for each in found["oldest"]} == ids
    assert {each["kind"] for each in found["oldest"]} == {"OPEN", "CHECK"}
    for each in found["oldest"]:
        (row,) = STREAM.rows(each["id"], each["id"] + 1)
        assert each["key"] == {"item_id": row["item_id"]}
    assert inspected("log", tmp_path / "log")["operator"] == spec.describe()


def test_the_oldest_windows_come_first_and_ages_cover_all(log: Path) -> None:
    """The first one is at T."""
    found = inspected("checkpoint", log, "--windows", 1000)
    ages = [window["age"] for window in found["oldest"]]
    assert ages == sorted(ages, reverse=True)
    assert ages[0] == found["tuples_to_replay"]
    assert sum(group["windows"] for group in found["ages"]) == found["windows"]
    for group in found["ages"]:
        inside = [age for age in ages if group["youngest"] <= age < group["oldest"]]
        assert len(inside) == group["windows"]


def test_the_checkpoint_is_printed_for_people(log: Path) -> None:
    """With bars for the ages, and as many windows as asked for."""
    code, output = inspect("checkpoint", log, "--windows", 3)
    assert code == 0
    assert "█" in output
    assert output.count("item_id=") == 3
    assert "from CHECK" in output


def test_without_metadata_windows_have_no_keys(tmp_path: Path) -> None:
    """Everything else is shown."""
    write(tmp_path / "log", {})
    found = inspected("checkpoint", tmp_path / "log")
    assert found["windows"] > 0
    assert {window["key"] is None for window in found["oldest"]} == {True}
    assert "item_id" not in inspect("checkpoint", tmp_path / "log")[1]


@pytest.mark.parametrize(
    "metadata",
    [
        {"schema": b"no schema", "operator": "no JSON"},
        {"schema": METADATA["schema"], "operator": '{"by": 5}'},
        {
            "schema": METADATA["schema"],
            "operator": json.dumps(SPEC.describe() | {"by": ["avg_item_price"]}),
        },
        {
            "schema": METADATA["schema"],
            "operator": json.dumps(SPEC.describe() | {"by": ["no_such_column"]}),
        },
    ],
)
def test_metadata_of_something_else_is_as_none(
    tmp_path: Path, metadata: dict[str, str | bytes]
) -> None:
    """It is somebody else's word, and never in the way of what can be read."""
    write(tmp_path / "log", metadata)
    assert inspect("log", tmp_path / "log", "--sections")[0] == 0
    found = inspected("checkpoint", tmp_path / "log")
    assert {window["key"] is None for window in found["oldest"]} == {True}


# --- nothing is changed ------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_inspecting_changes_nothing(log: Path, command: tuple[str, ...]) -> None:
    """No byte, no time of change, no new file, no lock."""
    before = everything(log)
    inspect(command[0], log, *command[1:])
    assert everything(log) == before
    assert not (log / "lock").exists()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_inspecting_a_damaged_log_changes_nothing(
    damaged: tuple[Path, dict[str, Any]], command: tuple[str, ...]
) -> None:
    """It is evidence."""
    log, _ = damaged
    before = everything(log)
    inspect(command[0], log, *command[1:])
    assert everything(log) == before


def test_inspecting_beside_a_writer_changes_nothing(log: Path) -> None:
    """The writer holds the log's lock, and goes on as if nobody had looked."""
    with open_log_writer(log) as writer:
        writer.wait(writer.append(sample_turn(1)))
        before = everything(log)
        for command in COMMANDS[:3]:
            assert inspect(command[0], log, *command[1:])[0] == 0
        assert everything(log) == before
        assert writer.wait(writer.append(sample_turn(2)), timeout=30)
    assert inspected("log", log)["end_sequence"] == TURNS + 2


def test_a_log_being_written_never_looks_damaged(tmp_path: Path) -> None:
    """Frames half written and segments just begun are no damage."""
    log = tmp_path / "log"
    create_log(log, "busy")
    stop = threading.Event()

    def write_on(number: int = 0) -> None:
        with open_log_writer(log) as writer:
            while not stop.is_set():
                # One by one: a writer at full speed would outgrow every inspection.
                writer.wait(writer.append(sample_turn(number, size=4096)))
                number += 1

    with ExitStack() as stack:
        thread = threading.Thread(target=write_on)
        thread.start()
        stack.callback(thread.join)
        stack.callback(stop.set)
        ends = [inspected("log", log, "--last", 2) for _ in range(8)]
    assert [found["ok"] for found in ends] == [True] * 8
    assert sorted(found["end_sequence"] for found in ends) == [
        found["end_sequence"] for found in ends
    ]


def test_a_narrow_terminal_gets_whole_rows(log: Path) -> None:
    """Fewer columns, none of them folded, and a word about the others."""
    output = inspect("log", log, columns=80)[1]
    assert max(len(line) for line in output.splitlines()) <= 80
    assert "a wider terminal also shows" in output

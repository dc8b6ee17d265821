"""The fuzz targets hold for every seed, every regression and thousands of seeded mutations."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FUZZ = ROOT / "fuzz"

DECODERS = (
    "frame",
    "columns",
    "segment",
    "mark",
    "descriptor",
    "index",
    "floor",
    "results",
    "wire",
)


@pytest.fixture(autouse=True)
def fuzz_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the `fuzz` folder importable, as its scripts do."""
    monkeypatch.syspath_prepend(str(ROOT))


def python(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the folder in a process of its own, where a crash is only a failure."""
    command = [sys.executable, "-W", "ignore", *map(str, arguments)]
    environ = {**os.environ, **environment}
    return subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )


def checked(mutations: int, *arguments: str, **environment: str) -> dict[str, Any]:
    """What all inputs of these targets came to."""
    result = python(FUZZ / "check.py", str(mutations), *arguments, **environment)
    assert result.returncode in (0, 4), result.stderr[-2000:]
    outcome: dict[str, Any] = json.loads(result.stdout)
    return outcome


def stories(outcome: dict[str, Any]) -> str:
    """The first findings, readable."""
    found = [story for target in outcome["targets"] for story in target["stories"]]
    return "\n".join(found[:3])


# --- what may come out of hostile bytes ----------------------------------------------------------


@pytest.mark.parametrize(
    ("mutations", "targets"), [(400, DECODERS), (600, ("log",)), (600, ("footprints",))]
)
def test_hostile_bytes_raise_typed_errors_only(mutations: int, targets: tuple[str, ...]) -> None:
    """Seeds, regressions and mutations: no untyped error, no wrong answer, no hang, no crash."""
    outcome = checked(mutations, *targets)
    assert stories(outcome) == ""
    assert [each["mutations"] for each in outcome["targets"]] == [mutations] * len(targets)


def test_honest_footprints_are_never_refused() -> None:
    """A check that is too strict would turn a good log into a lost one."""
    assert checked(0, "footprints")["refused"] == []


def test_there_are_hundreds_of_seeds_and_they_are_always_the_same() -> None:
    """A run that cannot be repeated proves nothing."""
    every = (*DECODERS, "log", "footprints")
    first = checked(50, "--dry", *every, PYTHONHASHSEED="1")["targets"]
    second = checked(50, "--dry", *every, PYTHONHASHSEED="2")["targets"]
    assert sum(each["seeds"] for each in first) >= 300
    assert min(each["seeds"] for each in first) >= 1
    assert [each["digest"] for each in first] == [each["digest"] for each in second]


def test_every_regression_belongs_to_a_target() -> None:
    """A regression in a folder of another name would never be replayed."""
    from fuzz.targets import TARGETS

    kept = [path for path in (FUZZ / "regressions").rglob("*") if path.is_file()]
    assert len(kept) >= 50
    assert {path.parent.name for path in kept} <= set(TARGETS)


# --- the tools themselves ------------------------------------------------------------------------


def test_an_untyped_error_is_a_finding_and_a_typed_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a green run would mean nothing."""
    from fuzz import targets
    from fuzz.findings import attempt

    from rewake.model.errors import DamagedFrame

    def failing(error: Exception) -> Any:
        def decode(*_arguments: object) -> None:
            raise error

        return decode

    monkeypatch.setattr(targets, "unpack_columns", failing(IndexError("out of range")))
    assert isinstance(attempt("columns", b""), IndexError)
    monkeypatch.setattr(targets, "unpack_columns", failing(DamagedFrame("refused")))
    assert attempt("columns", b"") is None


def test_a_hang_is_interrupted_and_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is processor time, so a busy machine finds no hangs where there are none."""
    from fuzz import targets
    from fuzz.findings import TookTooLong, attempt

    def endless(_data: bytes) -> None:
        while True:
            pass

    monkeypatch.setitem(targets.TARGETS, "frame", endless)
    assert isinstance(attempt("frame", b"", seconds=0.05), TookTooLong)


def test_a_finding_is_kept_once_with_its_story(tmp_path: Path) -> None:
    """Same error, same place: one input is enough."""
    from fuzz.findings import Findings, attempt, target_of
    from fuzz.targets import TARGETS

    findings = Findings("frame", tmp_path)
    error = attempt("frame", None)  # type: ignore[arg-type]
    assert error is not None
    kept = findings.keep(b"first", error)
    assert kept is not None
    assert findings.keep(b"second", error) is None
    assert kept.read_bytes() == b"first"
    assert f"--replay {kept}" in kept.with_suffix(".txt").read_text()
    assert target_of(kept) == "frame"
    assert target_of(tmp_path / "log" / "any-name") == "log"
    assert target_of(tmp_path / "other-name") is None
    assert "frame" in TARGETS


def test_edits_without_right_checksums_cannot_forge_a_frame() -> None:
    """The oracle of the `log` target knows the honest frames: prove that it looks at them."""
    from fuzz import targets
    from fuzz.inputs import OVERWRITE, REPAIR, Edit, pack_edits, unpack_edits
    from fuzz.logs import damaged, honest, stores_of

    from rewake.log.log import Log

    names = [name for stripe in honest(0) for name in sorted(stripe)]
    file = next(place for place, name in enumerate(names) if name.endswith(".log"))
    forging = [Edit(file, OVERWRITE | REPAIR, 88 + 104, b"\xff" * 8)]
    assert unpack_edits(pack_edits(0, forging)) == (0, forging)
    reader = Log.open_reader(stores_of(damaged(honest(0), forging)))
    with pytest.raises(AssertionError, match="damage was read as data"):
        targets.read_all(reader, targets.known_frames(0))


def test_repaired_checksums_are_those_that_the_log_writes() -> None:
    """An honest file is left as it is, so only what is hostile differs from an honest log."""
    from fuzz.checksums import repaired, sealed_frame
    from fuzz.logs import LOG_ID, LOGS, honest
    from log_vocabulary import sample_turn

    from rewake.log.frame import encode_frame

    for case in range(len(LOGS) - 2):
        files = honest(case)
        for stripe in files:
            for name, data in stripe.items():
                same = repaired(name, data, log_id=LOG_ID, stripes=len(files)) == data
                assert same or (name == "mark" and data.count(bytes(1024)) > 0), name
    encoded = encode_frame(sample_turn(3), log_id=1, epoch=0, sequence=0, position=0, durable=0)
    assert sealed_frame(encoded) == encoded


def test_replaying_says_what_an_input_does(tmp_path: Path) -> None:
    """Exit code 0 when it does nothing wrong; 2 when nobody knows whose input it is."""
    clean = FUZZ / "regressions" / "results" / "nothing"
    assert python(FUZZ / "run.py", "--replay", clean).returncode == 0
    stray = tmp_path / "stray"
    stray.write_bytes(b"")
    assert python(FUZZ / "run.py", "--replay", stray).returncode == 2
    assert python(FUZZ / "run.py", "frame", "--replay", stray).returncode == 0


def test_without_atheris_the_fuzzer_says_how_to_get_it(tmp_path: Path) -> None:
    """Exit code 3: the environment lacks something."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'atheris' else find(name, *rest)\n"
    )
    result = python(FUZZ / "run.py", PYTHONPATH=str(tmp_path))
    assert result.returncode == 3, result.stderr
    assert "atheris is not installed" in result.stdout


def test_an_unknown_target_is_refused_with_the_known_ones() -> None:
    """Exit code 2: wrong usage."""
    result = python(FUZZ / "run.py", "nonsense", COLUMNS="300", TERM="dumb")
    assert result.returncode == 2
    assert "footprints" in result.stderr

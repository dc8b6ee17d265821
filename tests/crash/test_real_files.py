"""Real files, real processes, real signals, a real full disk."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import strength
from log_vocabulary import number_of, sample_turn

from rewake.log.writing.pipeline import Limits, State
from rewake.model.errors import DamagedLog, Fenced, StorageFault
from rewake.stores import create_log, open_log_reader, open_log_writer

ROOT = Path(__file__).parents[2]
PATHS = os.pathsep.join(str(ROOT / folder) for folder in ("src", "tests/support"))
KILLS = 8 * strength.SCALE

CHILD = """
import sys
from rewake.log.writing.pipeline import Limits
from log_vocabulary import sample_turn
from rewake.stores import open_log_writer

def promise(through):
    sys.stdout.write(f"{through}\\n")
    sys.stdout.flush()

limits = Limits(segment_bytes=200_000, index_interval=20_000, batch_frames=16)
writer = open_log_writer(sys.argv[2:], epoch=int(sys.argv[1]), limits=limits, on_durable=promise)
promise(writer.recovered)
while True:
    writer.append(sample_turn(writer.next_sequence, size=800))
"""


def start_child(epoch: int, paths: list[Path]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(epoch), *map(str, paths)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": PATHS},
    )


def numbers_in(paths: list[Path]) -> list[int]:
    with open_log_reader(paths) as reader:
        return [number_of(frame) for frame in reader.frames()]


@pytest.mark.parametrize("stripes", [1, 2])
def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path, stripes, tally):
    """SIGKILL at arbitrary moments, again and again, on the same log."""
    paths = [tmp_path / str(stripe) for stripe in range(stripes)]
    create_log(paths, "killed")
    acknowledged = 0
    for epoch in range(KILLS):
        child = start_child(epoch, paths)
        assert child.stdout is not None
        assert int(child.stdout.readline()) >= acknowledged
        acknowledged = int(child.stdout.readline())
        time.sleep(0.02 + 0.037 * epoch)
        child.kill()
        lines = child.communicate()[0].split("\n")[:-1]  # the last line may be cut
        acknowledged = max([acknowledged, *(int(line) for line in lines)])
        found = numbers_in(paths)
        assert found == list(range(len(found)))
        assert len(found) >= acknowledged
    assert acknowledged > 0
    with open_log_writer(paths) as writer:
        assert writer.recovered >= acknowledged
    tally(f"SIGKILL on {stripes}: {KILLS} kills, {acknowledged} frames acknowledged, 0 lost")


def test_a_stopped_process_is_fenced_when_it_goes_on(tmp_path):
    """SIGSTOP, a successor, SIGCONT: the old writer ends, and none of its bytes is read."""
    create_log(tmp_path, "stopped")
    child = start_child(0, [tmp_path])
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(0.1)
    child.send_signal(signal.SIGSTOP)
    with open_log_writer(tmp_path, epoch=1, holder="the successor") as writer:
        inherited = writer.recovered
        for number in range(inherited, inherited + 50):
            writer.append(sample_turn(number))
        child.send_signal(signal.SIGCONT)
        _, stderr = child.communicate(timeout=20)
        assert child.returncode == 1
        assert Fenced.__name__ in stderr
        assert "the successor (epoch 1)" in stderr
    assert numbers_in([tmp_path]) == list(range(inherited + 50))


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one mebibyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_stalls_the_writer_until_there_is_room(small_disk):
    """For real: the disk fills up, space is freed, and everything appended is there."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(700_000))
    folder = small_disk / "log"
    create_log(folder, "full")
    limits = Limits(segment_bytes=50_000, window_frames=1000, batch_frames=8)
    with open_log_writer(folder, limits=limits) as writer:
        for number in range(600):
            writer.append(sample_turn(number, size=800), timeout=20)
        assert not writer.flush(timeout=0.5)
        assert writer.state is State.STALLED
        stalled_at = writer.completed
        ballast.unlink()
        assert writer.flush(timeout=20)
        assert writer.completed == 600 > stalled_at
    assert numbers_in([folder]) == list(range(600))


def test_a_read_only_folder_can_be_read_and_says_why_it_cannot_be_written(small_disk):
    """Readers need no write access; a writer is told what to do."""
    folder = small_disk / "log"
    create_log(folder, "frozen")
    with open_log_writer(folder) as writer:
        writer.append(sample_turn(0))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert numbers_in([folder]) == [0]
    with pytest.raises(StorageFault, match="read-only"):
        open_log_writer(folder)


def test_a_segment_that_is_gone_is_missed(tmp_path):
    """Deleting or cutting a file by hand is found on opening, by reader and writer alike."""
    create_log(tmp_path, "gone")
    with open_log_writer(tmp_path, limits=Limits(segment_bytes=2000, batch_frames=1)) as writer:
        for number in range(60):
            writer.append(sample_turn(number))
    segments = sorted(tmp_path.glob("segment-*.log"))
    for victim in (segments[1], segments[-1]):
        content = victim.read_bytes()
        victim.unlink()
        for open_log in (open_log_reader, open_log_writer):
            with pytest.raises(DamagedLog, match="missing") as caught:
                open_log(tmp_path)
            assert caught.value.segment == victim.name
        victim.write_bytes(content[:-8])
        with pytest.raises(DamagedLog, match="ends"):
            open_log_reader(tmp_path)
        victim.write_bytes(content)
        assert numbers_in([tmp_path]) == list(range(60))

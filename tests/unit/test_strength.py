"""What one run leaves out, others try: how much is tried is itself a rule with tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import strength


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One of two commits: the first has two files, the second has changed `new`."""
    monkeypatch.setattr(strength, "ROOT", tmp_path)
    monkeypatch.setattr(strength, "WHOLE", False)
    monkeypatch.delenv("REWAKE_SINCE", raising=False)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    strength.changed.cache_clear()
    _git(tmp_path, "init", "-q")
    for content in ("1", "2"):
        (tmp_path / "new").write_text(content)
        (tmp_path / "old").write_text("1")
        _git(tmp_path, "add", ".")
        _git(tmp_path, "commit", "-q", "-m", content)
    yield tmp_path
    strength.changed.cache_clear()


def _git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True)


def test_what_has_just_changed_is_enumerated_whole(repository: Path) -> None:
    """By the newest commit, or since; what has not is sampled."""
    assert strength.sampled(range(100), 10, about=("new",)) == range(100)
    assert len(strength.sampled(range(100), 10, about=("old",))) == 10
    assert len(strength.sampled(range(2), 10, about=("old",))) == 1, "a sample of none is no test"
    assert not strength.sampled(range(0), 10, about=("old",))
    strength.changed.cache_clear()
    (repository / "old").write_text("3")
    assert strength.sampled(range(100), 10, about=("old",)) == range(100)


def test_a_push_of_many_commits_says_what_it_began_from(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that it changed has just changed."""
    _git(repository, "commit", "-q", "--allow-empty", "-m", "3")
    assert not strength.changed("new")
    strength.changed.cache_clear()
    monkeypatch.setenv("REWAKE_SINCE", "HEAD~2")
    assert strength.changed("new")
    assert not strength.changed("old")


def test_where_git_cannot_tell_everything_is_tried(repository: Path) -> None:
    """A clone of one commit, or no repository at all."""
    (repository / ".git" / "HEAD").unlink()
    assert strength.changed("old")
    assert strength.commit.__wrapped__() == 0


def test_samples_of_commits_together_are_everything(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a commit's number: no case is in none of the samples."""
    tried: set[int] = set()
    for number in range(7):
        monkeypatch.setattr(strength, "commit", lambda number=number: number + 1_000_003)
        tried |= set(strength.sampled(range(100), 7, about=("old",)))
    assert tried == set(range(100))


@pytest.mark.parametrize(("whole", "scale", "expected"), [("", "", 33), ("1", "20", 2000)])
def test_a_run_tries_a_share_of_the_examples_and_a_soak_many_times_all(
    whole: str, scale: str, expected: int
) -> None:
    """By the environment that `make soak` sets."""
    environ = {**os.environ, "REWAKE_WHOLE": whole, "REWAKE_SCALE": scale or "1"}
    program = "import strength; print(strength.examples(100))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(strength.__file__).parent,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == expected

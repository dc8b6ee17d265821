"""What a user gives as a path: of this machine, or refused."""

from pathlib import Path

import pytest

from rewake.model.errors import UsageError
from rewake.stores.places import local_path, refuse_foreign

ELSEWHERE = [
    "s3://bucket/state",
    "s3a://bucket/state",
    "S3A://bucket/state",
    "gs://bucket/state",
    "abfss://container@account.dfs.core.windows.net/state",
    "hdfs://namenode:8020/state",
    "hdfs:///state",
    "hdfs:/state",
    "dbfs:/state",
    "dbfs:state",
    "http://host/state",
    "memory:",
    "memory://",
    "jdbc:sqlite:state",
    " s3a://bucket/state",
]


@pytest.mark.parametrize("given", ELSEWHERE)
def test_a_place_that_is_not_of_this_machine_is_refused(given, tmp_path, monkeypatch):
    """The error names the scheme and says what to do; nothing is made."""
    monkeypatch.chdir(tmp_path)
    scheme = given.strip().partition(":")[0].lower()
    with pytest.raises(UsageError, match=f"{scheme}:.*mounted") as caught:
        local_path(given)
    assert "./" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", [each.strip() for each in ELSEWHERE if ":/" in each])
def test_a_url_that_was_made_a_path_is_refused_too(given):
    """A Path of a URL has lost a slash, and is no less a URL."""
    with pytest.raises(UsageError, match="mounted"):
        local_path(Path(given))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("state", "state"),
        ("/a/b", "/a/b"),
        ("~/a", "~/a"),
        ("/a/b:c", "/a/b:c"),
        ("a/b:c", "a/b:c"),
        ("2026-11-18T10:00", "2026-11-18T10:00"),
        ("file:///a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file://localhost/a%20b", "/a b"),
        ("FILE:///a", "/a"),
    ],
)
def test_paths_and_file_urls_are_paths_of_this_machine(given, expected):
    """They mean what they say."""
    assert str(local_path(given)) == expected


def test_a_name_with_a_colon_can_be_given_with_a_dot(tmp_path, monkeypatch):
    """Whatever looks at it again sees a path, too."""
    monkeypatch.chdir(tmp_path)
    once = local_path("./a:b")
    assert once == tmp_path / "a:b"
    assert local_path(once) == local_path(str(once)) == once


@pytest.mark.parametrize("given", ["file://host/a", "file:a", "file:"])
def test_a_file_url_that_is_not_absolute_and_local_is_refused(given):
    """It says how to write one."""
    with pytest.raises(UsageError, match="file:///"):
        local_path(given)


def test_state_is_not_put_among_files_of_others(tmp_path: Path) -> None:
    """Neither could be read or removed without the other."""
    refuse_foreign(tmp_path / "new", frozenset(), "a stream")
    (tmp_path / "lock").touch()
    (tmp_path / "draft.tmp").touch()
    (tmp_path / "folder").mkdir()
    refuse_foreign(tmp_path, frozenset({"lock"}), "a stream")
    for name in "abcde":
        (tmp_path / f"{name}.parquet").touch()
    with pytest.raises(UsageError, match=r"\(a.parquet, b.parquet, c.parquet and 2 more\) and is"):
        refuse_foreign(tmp_path, frozenset({"lock"}), "a stream")

"""What is given wrongly to the functions that run on Spark is refused in words, before Spark is."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rewake
from rewake.model.errors import InvalidWindow, UsageError

TIMES = {"by": "k", "count": True, "time": "at"}


def query() -> rewake.Query:
    """A query that could run."""
    made = rewake.Query("q")
    made.source("numbers", rewake.Batches(pa.table({"k": [1]}))).to_stream("numbers")
    return made


@pytest.mark.parametrize("start", [rewake.start, rewake.start_processes])
def test_what_is_no_query_cannot_be_started(start: Any, tmp_path: Path) -> None:
    """Nor is a folder made for it."""
    with pytest.raises(UsageError, match=r"is a rewake\.Query, not 'averages'"):
        start("averages", tmp_path / "state")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("start", [rewake.start, rewake.start_processes])
@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"suspect_afer": 3}, "no option 'suspect_afer'; did you mean 'suspect_after'"),
        ({"zzz": 3}, r"no option 'zzz'\. Options: limits, faults, listen, "),
    ],
)
def test_an_option_that_is_not_known_is_refused(
    start: Any, option: dict[str, int], told: str, tmp_path: Path
) -> None:
    """With the nearest that is, and all."""
    with pytest.raises(UsageError, match=told):
        start(query(), tmp_path / "state", **option)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("seconds", ["3", 0, -1, None])
def test_what_is_no_time_is_refused(seconds: Any, tmp_path: Path) -> None:
    """Whatever its type."""
    with pytest.raises(UsageError, match=r"suspect_after is .*; give it seconds, more than 0"):
        rewake.start_processes(query(), tmp_path / "state", suspect_after=seconds)


def test_the_name_of_a_master_is_no_session(tmp_path: Path) -> None:
    """A session is made from it first."""
    with pytest.raises(UsageError, match=r"is a SparkSession, not 'local\[2\]'; make one with"):
        rewake.start(query(), tmp_path / "state", "local[2]")  # type: ignore[arg-type]


def test_no_folder_is_not_the_current_one() -> None:
    """As from a variable that was never set."""
    with pytest.raises(UsageError, match=r"the path is empty; write \. for the current folder"):
        rewake.start_processes(query(), "")


def test_state_cannot_be_where_a_file_is(tmp_path: Path) -> None:
    """Found out when the transform is made, not in the first batch."""
    file = tmp_path / "state"
    file.write_text("not ours")
    with pytest.raises(UsageError, match=r"'state': at=.* is a file; give the folder"):
        rewake.aggregate(window=rewake.time_window("1s"), at=file, **TIMES)  # type: ignore[arg-type]


def test_what_is_no_window_is_told_all_windows_there_are_here(tmp_path: Path) -> None:
    """Sessions are windows of `rewake.aggregate`, and no step of a Query."""
    with pytest.raises(InvalidWindow, match=r"window='1s' is no window.*session_window\(\"30s\"\)"):
        rewake.aggregate(window="1s", at=tmp_path, **TIMES)  # type: ignore[arg-type]

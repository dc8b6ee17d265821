"""`rewake drill FILE.py` and `rewake explain`: queries of one's own."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rewake.cli.app import app, main
from rewake.drill import files
from rewake.model.errors import UsageError

HEAD = """
import pyarrow as pa
import rewake

rows = pa.table({
    "item": pa.array([n * n % 31 for n in range(60_000)], pa.int32()),
    "price": pa.array([n * 7 % 100 for n in range(60_000)], pa.int32()),
    "at": pa.array(range(60_000), pa.int64()),
})
source = rewake.Batches(rows, event_tuples=500, time_column="at")
query = rewake.Query("mine")
items = query.source("items", source)
"""
ONE_PATH = """
def dear(batch):
    import pyarrow.compute as pc

    return pc.greater_equal(batch["price"], 20)

averages = items.filter(dear, name="dear").aggregate(
    by="item", window=rewake.count_window(10), avg="price", name="averages"
)
averages.to_stream("averages")
averages.filter("avg_price > 50", name="high").to_stream("high")
"""
UNITED = """
other = query.source("other", source)
items.union(other, name="both").{}.to_stream("totals")
"""
SINK = 'items.to(rewake.FileSink("out"), name="out")'
ENTRY = 'query.entry("orders", rows.schema).to_stream("orders")'


def rewake(*words: object) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


def written(folder: Path, name: str, tail: str, head: str = HEAD) -> Path:
    """A file with a query; its name must differ between tests, for it becomes a module."""
    path = folder / name
    path.write_text(head + tail)
    return path


def test_a_query_of_ones_own_is_compared_with_a_run_without_faults(tmp_path: Path) -> None:
    """Every stream, in order; the nodes find functions that the file defines."""
    path = written(tmp_path, "own_one_path.py", ONE_PATH)
    result = rewake("drill", path, "--kill", "averages@node.after_work#30", "--kill", "high@30%",
                    "--on", "processes", "--json", "--folder", tmp_path / "runs")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["query"], found["tuples"]) == ("mine", 60_000)
    assert found["results"] == found["expected"] > 4_000
    assert "averages" in [kill["node"] for kill in found["kills"]]
    assert found["latency_ms"]["p50"] is None
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {
        "query",
        "reference",
        "report.html",
        "report-data",
    }


def test_streams_that_meet_are_compared_without_their_order(tmp_path: Path) -> None:
    """The order in which two sources meet is chance; which tuples come out is not."""
    path = written(tmp_path, "own_united.py", UNITED.format('filter("price < 50", name="cheap")'))
    result = rewake("drill", path, "--kill", "both@20%", "--on", "processes", "--json",
                    "--folder", tmp_path / "runs")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    # The union and the filter behind it: both are logged, so both are compared.
    assert found["results"] == found["expected"] == 120_000 + 60_000


def test_a_difference_to_the_reference_exits_with_4(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Planted: the reference is said to lack its first tuples."""
    compare = files.compare
    monkeypatch.setattr(
        files, "compare", lambda wanted, found, **more: compare(wanted.slice(5), found, **more)
    )
    path = written(tmp_path, "own_different.py", ONE_PATH)
    result = rewake("drill", path, "--on", "processes", "--folder", tmp_path / "runs")
    assert result.exit_code == 4
    assert re.search(r"10 duplicated(, \d+ reordered)? of 9,5\d\d expected", result.stdout)


def test_a_file_may_build_its_query_in_a_function(tmp_path: Path) -> None:
    """As one does that also starts it, and must not when its nodes import it."""
    head = "def build():\n" + "".join(f"    {line}\n" for line in HEAD.splitlines())
    tail = "    items.to_stream('items')\n    return query\n"
    result = rewake("explain", written(tmp_path, "own_built.py", tail, head))
    assert result.exit_code == 0, result.output
    assert "items" in result.stdout
    assert files.load_query(tmp_path / "own_built.py").name == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def build(): return 5", r"`build\(\)` that returns one; `build\(\)` is 5"),
        ("def build(folder): ...", r"`build` is called without arguments.*'folder'.*defaults"),
        ("def build(): 1 / 0", "does not run: ZeroDivisionError"),
        ("build = 5", r"must define `query`, a rewake.Query, or a function `build\(\)`"),
    ],
)
def test_a_build_that_gives_no_query_is_told_what_to_do(
    text: str, message: str, tmp_path: Path
) -> None:
    """By explain and drill alike."""
    with pytest.raises(UsageError, match=message):
        files.load_query(written(tmp_path, "own_unbuilt.py", text, head=""))


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        (SINK, "step 'out' writes to a sink, and a drill runs the query twice"),
        (ENTRY + "\nitems.to_stream('items')", "step 'orders' is written by producers"),
        ("items.map(item='item', name='m').to_stream('m')\nquery = None", "must define `query`"),
        ("1 / 0", "does not run: ZeroDivisionError: division by zero"),
        ("items.filter('prise > 1')", "no column 'prise'; did you mean 'price'?"),
        ("", "nobody uses its output"),
        (
            UNITED.format('aggregate(by="item", window=rewake.count_window(5), sum="price")'),
            "depend on the order in which its inputs meet",
        ),
        (
            UNITED.format(
                'aggregate(by="item", window=rewake.time_window(50), time="at", sum="price")'
            ),
            "the windows of step 'aggregate-1' depend on the order",
        ),
    ],
)
def test_a_file_that_cannot_be_drilled_is_refused_with_the_reason(
    tail: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 2, before anything runs."""
    path = written(tmp_path, "own_refused.py", tail)
    monkeypatch.setattr("sys.argv", ["rewake", "drill", str(path), "--on", "processes"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_settings_of_built_in_queries_are_refused_for_a_file(tmp_path: Path) -> None:
    """They would do nothing."""
    path = written(tmp_path, "own_settings.py", ONE_PATH)
    result = rewake("drill", path, "--tuples", "5", "--keys", "3")
    assert "leave out --tuples, --keys" in str(result.exception)


def test_a_file_must_have_a_name_of_its_own(tmp_path: Path) -> None:
    """Nodes would import the other module of that name."""
    clash = written(tmp_path, "own-clash.py", ONE_PATH)
    assert "name it like a Python module" in str(rewake("explain", clash).exception)


# --- explain -------------------------------------------------------------------------------------


def test_explain_tells_a_query_and_draws_it(tmp_path: Path) -> None:
    """A built-in one or one's own; the text on stdout, the picture in a file."""
    result = rewake("explain", "items-sharded", "--picture", tmp_path / "items.mmd")
    assert result.exit_code == 0
    assert result.stdout.startswith("query items-sharded: 3 fragments on 4 nodes\n")
    assert "picture" not in result.stdout
    assert (tmp_path / "items.mmd").read_text().startswith("flowchart LR\n")
    result = rewake("explain", written(tmp_path, "own_explained.py", ONE_PATH))
    assert "averages: aggregate, 1 shard" in result.stdout


def test_a_picture_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    """With the reason."""
    result = rewake("explain", "items", "--picture", tmp_path / "nowhere" / "items.mmd")
    assert "No such file or directory" in str(result.exception)

"""The gallery: every program runs, with real servers, and prints what it should."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
# A program is over before the second compiler of Java pays: a third of all its work is saved.
_SHORT_LIVED = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
_RUNNER = Path(__file__).with_name("run_programs.py")

pytestmark = [pytest.mark.spark]


class Gallery(NamedTuple):
    """Programs that have run, each in a folder of its own."""

    folder: Path
    printed: dict[str, str]
    postgres: str


def run(folder: Path, **arguments: list[str]) -> dict[str, str]:
    """Run programs, one after the other in one new process; return what each printed."""
    report = folder / "report.json"
    words: list[str] = []
    for name, others in arguments.items():
        program = str(EXAMPLES / f"{name}.py")
        words += ["--", program, "--folder", str(folder / name), *others]
    command = [sys.executable, "-W", "error", str(_RUNNER), str(report), *words[1:]]
    result = subprocess.run(
        command,
        env=os.environ | _SHORT_LIVED,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found: dict[str, dict[str, str]] = json.loads(report.read_text())
    assert {name: each["failure"] for name, each in found.items() if each["failure"]} == {}
    return {name: each["printed"] for name, each in found.items()}


@pytest.fixture(scope="module")
def gallery(postgres_address: str, tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    folder = tmp_path_factory.mktemp("gallery")
    printed = run(
        folder,
        count_windows_from_nats=[],
        sql_on_the_last_hour=[],
        exactly_once_into_postgres=["--postgres", postgres_address],
        exactly_once_into_delta=[],
        sessions_that_survive=[],
        orders_and_payments=[],
    )
    return Gallery(folder, printed, postgres_address)


def table(printed: str) -> list[list[str]]:
    """Cells of a table that Spark has shown, without its heading."""
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_count_windows_over_a_broker_are_those_of_its_order(gallery: Gallery) -> None:
    """Every ten purchases of an item in the order of their sequences, none left out or repeated."""
    folder = gallery.folder / "count_windows_from_nats" / "averages"
    found = pyarrow.parquet.read_table(folder).to_pylist()
    expected = [
        {"item": item, "avg_price": sum(range(item + 70 * window, item + 70 * window + 70, 7)) / 10}
        for item in range(7)
        for window in range(10)
    ]
    assert sorted(found, key=lambda row: (row["item"], row["avg_price"])) == expected
    assert table(gallery.printed["count_windows_from_nats"])[0] == ["0", "31.5"]


def test_sql_sees_the_last_hour_alone(gallery: Gallery) -> None:
    """Its two batches of a thousand per item; those before and after are in the stream too."""
    rows = table(gallery.printed["sql_on_the_last_hour"])
    assert [row[:3] for row in rows] == [[str(item), "2000", "96"] for item in range(5)]
    assert {len(row[3]) for row in rows} == {len("12:34")}


def test_visits_survive_the_death_of_the_node_that_has_them(gallery: Gallery) -> None:
    """Every click is in one of them, and it was another attempt that closed the last."""
    printed = gallery.printed["sessions_that_survive"]
    assert " visits with 40,000 of 40,000 clicks, attempt " in printed
    assert not printed.endswith("attempt 1\n")


def test_orders_meet_their_payments_on_nodes(gallery: Gallery) -> None:
    """Each order once, nine of ten with a payment."""
    rows = [[int(cell) for cell in row] for row in table(gallery.printed["orders_and_payments"])]
    paid = [[n for n in range(1_000) if n % 5 == shop and n % 10] for shop in range(5)]
    assert rows == [
        [shop, 200, len(paid[shop]), sum(n % 97 for n in paid[shop])] for shop in range(5)
    ]


def averages_in_postgres(address: str) -> tuple[Any, ...] | None:
    """How many there are, ten times their sum, and how many batches were written."""
    import psycopg

    with psycopg.connect(address) as database:
        counted = "SELECT count(*), 10 * sum(price), (SELECT count(*) FROM batches) FROM averages"
        return database.execute(counted).fetchone()


def averages_in_delta(folder: Path) -> tuple[int, int, int | None]:
    """How many there are, ten times their sum, and the number of the last batch."""
    from deltalake import DeltaTable

    stored = DeltaTable(folder / "averages")
    values = stored.to_pyarrow_table(columns=["avg_price"])["avg_price"].to_pylist()
    return len(values), round(10 * sum(values)), stored.transaction_version("averages")


def forget_the_last_batch(folder: Path) -> int:
    """Leave Spark as if it had died after the batch was written, and before it was noted."""
    commits = folder / "checkpoint" / "commits"
    number = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for name in (f"{number}", f".{number}.crc"):
        (commits / name).unlink(missing_ok=True)
    return number


def test_databases_have_every_result_once_also_when_spark_repeats_a_batch(gallery: Gallery) -> None:
    """The state, the database and the table each know the batch, and none takes it again."""
    purchases = sum(range(4_000))
    assert averages_in_postgres(gallery.postgres) == (400, purchases, 2)
    delta = gallery.folder / "exactly_once_into_delta"
    assert averages_in_delta(delta)[:2] == (400, purchases // 100)
    assert table(gallery.printed["exactly_once_into_postgres"])[0] == ["0", "10", "1980.0"]
    assert "item" in gallery.printed["exactly_once_into_delta"]

    assert forget_the_last_batch(gallery.folder / "exactly_once_into_postgres") == 1
    forgotten = forget_the_last_batch(delta)
    run(
        gallery.folder,
        exactly_once_into_postgres=["--postgres", gallery.postgres],
        exactly_once_into_delta=[],
    )
    assert averages_in_postgres(gallery.postgres) == (400, purchases, 2)
    # This program has also made as many purchases again.
    averages, total, last = averages_in_delta(delta)
    assert (averages, total) == (800, 2 * purchases // 100)
    assert last is not None
    assert last > forgotten

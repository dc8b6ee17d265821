"""Experiments of the papers: what is kept, what pages are made of, what an interrupt leaves."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from rewake.cli.app import app
from rewake.model.errors import DamagedData, OperatingFault, UsageError
from rewake_lab.reproduce import pages as pages_module
from rewake_lab.reproduce.experiment import (
    PAPERS,
    Experiment,
    OtherRows,
    Setting,
    mean,
    middle,
    several,
    where,
)
from rewake_lab.reproduce.pages import write_pages
from rewake_lab.reproduce.raw import MANIFEST, keep, kept_rows, manifest
from rewake_lab.reproduce.registry import ENTRIES, Entry, chosen
from rewake_lab.reproduce.run import Interrupted, run, run_one
from sample_experiment import TOY, toy


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy is the only experiment there is."""
    monkeypatch.setattr(Entry, "load", lambda _self: toy())
    monkeypatch.setattr(pages_module, "ENTRIES", (TOY,))


def keep_toy(folder: Path, error: BaseException | None = None) -> None:
    run_one("toy", toy(error), Setting(folder, "small", 7), folder, "rewake reproduce toy")


# --- the registry ----------------------------------------------------------------------------


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_listed_experiment_exists(entry: Entry) -> None:
    """The table never names what cannot be run."""
    assert isinstance(entry.load(), Experiment)
    assert entry.paper in PAPERS


def test_names_are_unique_and_all_means_all() -> None:
    """A name is a file name and a word on the command line."""
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)
    assert chosen(["all"]) == list(ENTRIES)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    """Nothing runs when one of the names is wrong."""
    with pytest.raises(UsageError, match="no experiment 'cec-fig99'; there are all, cec-fig5"):
        chosen(["cec-fig5", "cec-fig99"])


# --- what is kept ----------------------------------------------------------------------------


def test_rows_and_how_they_came_about_are_kept(tmp_path: Path) -> None:
    """Versions, load, seed, scale and command stand beside the rows."""
    keep_toy(tmp_path)
    assert kept_rows(tmp_path, "toy").to_pylist() == [{"x": 1, "y": 2.0}, {"x": 2, "y": 7.0}]
    kept = manifest(tmp_path)["toy"]
    assert (kept.state, kept.rows, kept.seed, kept.scale) == ("complete", 2, 7, "small")
    assert kept.command == "rewake reproduce toy"
    assert kept.scaling == "scaled small"
    assert kept.facts["load_average"] >= 0
    assert {"pyarrow", "numpy"} <= set(kept.facts["packages"])


def test_a_second_experiment_leaves_the_first_in_place(tmp_path: Path) -> None:
    """A folder is filled run by run."""
    keep_toy(tmp_path)
    run_one("other", toy(), Setting(tmp_path), tmp_path, "rewake reproduce other")
    assert sorted(manifest(tmp_path)) == ["other", "toy"]


def test_a_failure_keeps_its_rows_and_its_reason(tmp_path: Path) -> None:
    """What was measured before the failure is not lost."""
    keep_toy(tmp_path, OperatingFault("the disk is gone"))
    kept = manifest(tmp_path)["toy"]
    assert (kept.state, kept.rows, kept.error) == ("failed", 2, "the disk is gone")
    assert kept_rows(tmp_path, "toy").num_rows == 2


def test_an_interrupt_keeps_what_there_is_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The experiments after it do not run, and no scratch folder is left."""
    experiments = {"first": toy(), "second": toy(KeyboardInterrupt()), "third": toy()}
    monkeypatch.setattr(Entry, "load", lambda self: experiments[self.name])
    entries = [Entry(name, "cec", "", "") for name in experiments]
    with pytest.raises(Interrupted, match="first, and 2 rows of second; missing: second, third"):
        run(entries, tmp_path, scale="small", seed=1, command="x", progress=lambda _words: None)
    states = {name: kept.state for name, kept in manifest(tmp_path).items()}
    assert states == {"first": "complete", "second": "interrupted"}
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": 1}', '{"format": 1, "experiments": {"toy": {}}}']
)
def test_a_damaged_manifest_is_refused(tmp_path: Path, text: str) -> None:
    """Pages are never made of half of what was kept."""
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(DamagedData, match="not a manifest"):
        manifest(tmp_path)


def test_a_manifest_of_another_format_is_refused(tmp_path: Path) -> None:
    """It says which format it found."""
    (tmp_path / MANIFEST).write_text(json.dumps({"format": 99, "experiments": {}}))
    with pytest.raises(UsageError, match="has format 99"):
        manifest(tmp_path)


def test_rows_that_are_missing_or_damaged_are_refused(tmp_path: Path) -> None:
    """The manifest alone is no data."""
    keep_toy(tmp_path)
    (tmp_path / "toy.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(DamagedData, match="cannot be read"):
        kept_rows(tmp_path, "toy")
    (tmp_path / "toy.parquet").unlink()
    with pytest.raises(UsageError, match="is missing though the manifest names it"):
        kept_rows(tmp_path, "toy")


# --- rows ------------------------------------------------------------------------------------


def test_numbers_are_picked_from_rows() -> None:
    """By the values of other columns."""
    table = pa.table({"name": ["b", "b", "a", "b"], "value": [1.0, 2.0, 5.0, 9.0]})
    assert middle(table, "value", name="b") == 2.0
    assert mean(table, "value", name="b") == 4.0
    assert several(table, "name") == ["b", "a"]


def test_rows_of_another_version_are_told_apart() -> None:
    """A column or a value that is not there is no zero."""
    table = pa.table({"name": ["a"]})
    with pytest.raises(OtherRows, match="no column 'period'"):
        where(table, period=5)
    with pytest.raises(OtherRows, match="no row with"):
        where(table, name="b")


# --- pages -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("registered")
def test_a_page_shows_plots_findings_and_the_verdict(tmp_path: Path) -> None:
    """All of it from what was kept."""
    keep_toy(tmp_path)
    (path,) = write_pages(tmp_path)
    text = path.read_text()
    assert path.name == "cec.html"
    for words in ("Fig. 0: A toy", "The verdict on 1 row.", "y at 1", "<svg", "a mark"):
        assert words in text
    for card in ("experiments complete", "1 of 1", "rows measured", "scale"):
        assert card in text


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("load", "said"), [(0.1, False), (50.0, True)])
def test_a_page_says_when_the_machine_was_busy(tmp_path: Path, load: float, said: bool) -> None:
    """Figures of a busy machine are not to be believed."""
    keep_toy(tmp_path)
    kept = manifest(tmp_path)["toy"]
    facts = kept.facts | {"load_average": load, "cores": 2}
    keep(tmp_path, replace(kept, facts=facts), kept_rows(tmp_path, "toy").to_pylist())
    assert ("The machine was busy" in write_pages(tmp_path)[0].read_text()) == said


@pytest.mark.usefixtures("registered")
def test_a_page_says_which_experiment_is_unfinished(tmp_path: Path) -> None:
    """Its rows are shown, without a verdict on them."""
    keep_toy(tmp_path, KeyboardInterrupt())
    text = write_pages(tmp_path)[0].read_text()
    assert "interrupted: only 2 rows were kept" in text
    assert "The verdict" not in text


def test_a_page_names_the_experiments_that_were_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that shows less than the paper says so."""
    monkeypatch.setattr(Entry, "load", lambda _self: toy())
    monkeypatch.setattr(pages_module, "ENTRIES", (TOY, Entry("rest", "cec", "Fig. 1", "")))
    keep_toy(tmp_path)
    assert "Not run: rest." in write_pages(tmp_path)[0].read_text()


def test_rows_of_another_version_do_not_spoil_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are still shown."""
    monkeypatch.setattr(pages_module, "ENTRIES", (ENTRIES[1],))
    name = ENTRIES[1].name
    run_one(name, toy(), Setting(tmp_path), tmp_path, "rewake reproduce")
    assert "run the experiment again" in write_pages(tmp_path)[0].read_text()


def test_a_column_that_was_renamed_does_not_spoil_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever way the experiment looks for it."""
    other = replace(toy(), verdict=lambda table: str(table["z"]))
    monkeypatch.setattr(Entry, "load", lambda _self: other)
    monkeypatch.setattr(pages_module, "ENTRIES", (TOY,))
    keep_toy(tmp_path)
    assert "run the experiment again" in write_pages(tmp_path)[0].read_text()


def test_a_folder_without_experiments_has_no_pages(tmp_path: Path) -> None:
    """And the message says what to do."""
    with pytest.raises(UsageError, match="holds no reproduced experiments; run"):
        write_pages(tmp_path)


# --- the command -----------------------------------------------------------------------------


def test_the_command_lists_all_experiments() -> None:
    """For people and for programs."""
    shown = CliRunner().invoke(app, ["reproduce", "list"]).stdout
    assert all(entry.name in shown and entry.title in shown for entry in ENTRIES)
    listed = json.loads(CliRunner().invoke(app, ["reproduce", "list", "--json"]).stdout)
    assert [each["name"] for each in listed["experiments"]] == [entry.name for entry in ENTRIES]


def test_the_command_runs_keeps_and_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our figures beside the paper's, and pages that can be made again."""
    monkeypatch.setattr(Entry, "load", lambda _self: toy())
    arguments = ["reproduce", "cec-fig5", "--folder", str(tmp_path), "--seed", "4", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    (one,) = shown["experiments"]
    assert one["findings"] == [{"what": "y at 1", "ours": 2.0, "unit": "units", "paper": "3"}]
    (page,) = map(Path, shown["pages"])
    page.unlink()
    again = CliRunner().invoke(app, ["reproduce", "pages", str(tmp_path)])
    assert again.exit_code == 0, again.output
    assert page.is_file()
    assert manifest(tmp_path)["cec-fig5"].seed == 4


def test_a_scale_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """Before anything runs."""
    arguments = ["reproduce", "all", "--scale", "huge", "--folder", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, UsageError)
    assert "no scale 'huge'; choose one of small, full" in str(result.exception)
    assert list(tmp_path.iterdir()) == []

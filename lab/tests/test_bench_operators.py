"""`rewake bench operators`: every case runs, and figures have their form."""

from dataclasses import replace

import pytest

from rewake.model.errors import UsageError
from rewake_lab.bench.operators import measure as bench


@pytest.mark.parametrize("case", list(bench.cases()), ids=lambda case: case.name)
def test_every_case_runs_as_the_planner_would_run_it(case, tmp_path, monkeypatch):
    """A few turns of each; what has state says what a part takes."""
    monkeypatch.setattr(bench, "cases", lambda: iter([replace(case, warm=3, measured=2)]))
    rows = bench.run(tmp_path, lambda _: None, quick=True).rows
    assert rows[0].name == case.name
    assert all(row.value > 0 for row in rows)
    if case.program.stateful is not None:
        assert [row.unit for row in rows[1:]] == ["bytes per part", "M parts/s", "M parts/s"]


def test_every_operator_has_a_case():
    """Those of the papers, those of users, and those with a database."""
    names = " ".join(case.name for case in bench.cases())
    words = "filter map split union aggregate sessions join bsort resample process lookup write"
    assert [word for word in words.split() if word not in names] == []


def test_an_operator_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    """Before anything runs."""
    with pytest.raises(UsageError, match="there are: filter, map"):
        bench.run(tmp_path, lambda _: None, only=["fliter"])

"""What the gallery's pages promise of the programs: short, shown whole, all of them listed."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PROGRAMS = sorted(path for path in EXAMPLES.glob("*.py") if path.stem != "servers")
PAGE = ROOT / "docs" / "guides" / "gallery.md"


def test_there_are_seven_programs() -> None:
    """Six and a notebook."""
    assert len(PROGRAMS) == 6
    assert (EXAMPLES / "tour.ipynb").is_file()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_is_short_enough_to_be_read(program: Path) -> None:
    """Under 40 lines, with everything."""
    assert len(program.read_text().splitlines()) < 40


def test_the_code_of_the_notebook_is_short_enough_to_be_read() -> None:
    """Under 40 lines in all cells together, without empty ones."""
    cells = json.loads((EXAMPLES / "tour.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert 0 < len([line for line in code.splitlines() if line.strip()]) < 40


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_the_guide_shows_a_program_as_it_is(program: Path) -> None:
    """A program that has changed is copied into the page, whole."""
    blocks = re.findall(r"^```python no-run\n(.*?)^```$", PAGE.read_text(), re.M | re.DOTALL)
    assert program.read_text() in blocks


@pytest.mark.parametrize("page", [PAGE, EXAMPLES / "README.md"], ids=lambda path: path.stem)
def test_a_page_names_every_program(page: Path) -> None:
    """By its file."""
    text = page.read_text()
    assert [
        path.name for path in [*PROGRAMS, EXAMPLES / "tour.ipynb"] if path.name not in text
    ] == []

"""The tour runs from its first cell to its last, and draws."""

import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

_DRAWN = "image/svg+xml"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.usefixtures("require_spark")
def test_the_tour_runs_and_draws_its_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel of this interpreter, which knows nothing of the kernels of the machine."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("JUPYTER_PATH", str(kernel_of_this_interpreter(tmp_path)))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")  # cheaper for a short run
    notebook = nbformat.read(EXAMPLES / "tour.ipynb", as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="rewake-tour")
    client.execute(cwd=str(tmp_path))
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert [each for each in outputs if each.get("name") == "stderr"] == []
    assert sum(_DRAWN in each.get("data", {}) for each in outputs) == 3


def kernel_of_this_interpreter(folder: Path) -> Path:
    """Describe a kernel; the folder in which Jupyter finds it."""
    import json

    place = folder / "jupyter" / "kernels" / "rewake-tour"
    place.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    described = {"argv": command, "display_name": "Rewake", "language": "python"}
    (place / "kernel.json").write_text(json.dumps(described))
    return folder / "jupyter"

"""Makes the modules beside the tests importable by name, and a drill that pages are made of."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests" / "unit" / "report")]

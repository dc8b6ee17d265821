"""Makes the modules importable by name: the browser, and the sample of a drill."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "unit" / "report")]

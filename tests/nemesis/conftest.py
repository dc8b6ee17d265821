"""Makes the folder's vocabulary importable, here and in the processes of nodes."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

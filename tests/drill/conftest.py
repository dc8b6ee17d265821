"""Makes the folder's vocabulary importable, here and in the processes of nodes."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
# Tests that give functions of their own to nodes are modules below this one, as pytest names them.
sys.path.insert(1, str(Path(__file__).parents[2]))

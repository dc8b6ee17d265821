"""Imported before numpy by processes that hold windows: their memory comes in small pages.

numpy asks for pages of 2 MiB under large arrays.  A node that comes back takes a hundred megabytes
at once, and on a virtual machine that was sometimes slow with them: of 36 loads of a million
windows (the drills of `rewake bench recover-within` with 1 s, four runs of each in turns) seven
took 450 to 660 ms with large pages, and none more than 360 ms with small ones; the median was the
same, and so was throughput.  A promise goes by the slow ones.
"""

import os

# Whoever starts the process may say otherwise.
os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")

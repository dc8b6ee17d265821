"""Imported before numpy by processes that hold windows: their memory comes in small pages.

numpy asks for pages of 2 MiB under large arrays.  A node that comes back takes a hundred megabytes
at once, and where memory is the host's, as on a virtual machine, large pages are mostly such that
the host has yet to find: in drills with a million windows most loads took 200 to 300 ms either way,
but one of five with large pages 450 to 660 ms, and none with small ones more than 360.  A promise
goes by the slow ones.  Throughput was the same.
"""

import os

# Whoever starts the process may say otherwise.
os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")

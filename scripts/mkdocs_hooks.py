"""Lets the documents mark Python that the tests do not run, which Markdown itself has no way to."""

import re
from typing import Any

_NO_RUN = re.compile(r"^```python no-run[ ]*$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Show a block marked `no-run` like any other Python."""
    return _NO_RUN.sub("```python", markdown)

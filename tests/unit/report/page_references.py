"""What a page would load from elsewhere, or run: a self-contained page has none of it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_LOADING = {"src", "href", "xlink:href", "srcset", "data", "poster", "action", "background"}
_RUNNING = {"script", "iframe", "object", "embed", "link", "base"}
_INSIDE = ("#", "data:image/png;", "data:image/svg+xml;")
_URL = re.compile(r"""url\(\s*["']?(?!#)([^)"']*)""", re.IGNORECASE)
_IMPORT = re.compile(r"@import\s+([^;]+)", re.IGNORECASE)


def external_references(html: str) -> list[str]:
    """Everything in the page that is not in its own file, or that would run; in its order.

    A link to follow (`<a href>`) is one too: reports are kept longer than addresses.
    """
    finder = _Finder()
    finder.feed(html)
    finder.close()
    return finder.found


class _Finder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_style = tag == "style"
        if tag in _RUNNING:
            self.found.append(f"<{tag}>")
        for name, value in attrs:
            given = (value or "").strip()
            if name.startswith("on"):
                self.found.append(f"{name}={given}")
            elif name in _LOADING and not given.startswith(_INSIDE):
                self.found.append(given)
            else:
                self._look(given)

    def handle_endtag(self, tag: str) -> None:
        if tag == "style":
            self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self._look(data)

    def _look(self, css: str) -> None:
        self.found += [each for each in _URL.findall(css) if not each.startswith(_INSIDE)]
        self.found += _IMPORT.findall(css)

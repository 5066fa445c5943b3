"""The console: a page for browsers that shows a running hub, plain files that the HTTP door serves at `/ui/`.

    index.html     the page: every tab's place in it
    console.css    light and dark, desktop and phone
    main.js        the module that the page loads; the others are named by what they show

There is no build step: what lies here is what the browser gets. Nothing of it is secret; what the page shows it asks
the hub for, with the rights of whoever has logged in.
"""
from __future__ import annotations

from importlib.resources import files
from typing import Final

from gatehouse.gateways.contract import PageFile

PAGE: Final = "index.html"
CONTENT_TYPES: Final = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8",
                        "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


def read_console() -> dict[str, PageFile]:
    """The console's files by their names below `/ui/`; the page itself is "" too."""
    pages = {}
    for file in files(__package__).iterdir():
        content_type = CONTENT_TYPES.get(file.name.rpartition(".")[2])
        if content_type is not None:
            pages[file.name] = PageFile(content_type, file.read_bytes())
    pages[""] = pages[PAGE]
    return pages

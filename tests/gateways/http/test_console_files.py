"""The console's files: what they are, that browsers may keep them, and what the page may do."""
from __future__ import annotations

import re

import pytest

from gatehouse.console import read_console
from tests.gateways.http.kit import Client, run_door

FILES = read_console()


def test_every_file_is_served_with_its_type_and_kept_by_its_tag() -> None:
    async def test(client: Client) -> None:
        for name, file in FILES.items():
            told = await client.ask("GET", f"/ui/{name}")
            assert (told.status, told.body) == (200, file.body), name
            assert (told.headers["Content-Type"], told.headers["Cache-Control"]) == (file.content_type, "no-cache")
            tag = told.headers["Etag"]
            again = await client.ask("GET", f"/ui/{name}", headers={"If-None-Match": f'"other", {tag}'})
            assert (again.status, again.body, again.headers["Etag"]) == (304, b"", tag)
    run_door(test, services={"console": FILES})


def test_the_page_may_run_and_ask_nothing_but_this_hub() -> None:
    async def test(client: Client) -> None:
        told = await client.ask("GET", "/ui/")
        policy = told.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "*" not in policy
        assert "require-trusted-types-for 'script'" in policy and "frame-ancestors 'none'" in policy
        assert told.headers["X-Content-Type-Options"] == "nosniff"
    run_door(test, services={"console": FILES})


@pytest.mark.parametrize("path", ["/ui/nothing.js", "/ui/../secret", "/ui/%2e%2e/secret", "/ui/%00", "/ui//main.js",
                                  "/ui/__init__.py", "/ui/main.js/x"])
def test_nothing_else_is_served(path: str) -> None:
    async def test(client: Client) -> None:
        assert (await client.ask("GET", path)).status == 404
    run_door(test, services={"console": FILES})


def test_without_the_slash_it_leads_to_the_page() -> None:
    async def test(client: Client) -> None:
        told = await client.ask("GET", "/ui", allow_redirects=False)
        assert (told.status, told.headers["Location"]) == (308, "/ui/")
    run_door(test, services={"console": FILES})


@pytest.mark.parametrize("name", [name for name in FILES if name])
def test_what_a_file_names_is_there_and_none_makes_html_of_text(name: str) -> None:
    text = FILES[name].body.decode()
    for named in re.findall(r'from "\./([^"]+)"|(?:href|src)="([^"#:]+)"', text):
        assert (named[0] or named[1]) in FILES
    assert not re.search(r"innerHTML|outerHTML|AdjacentHTML|document\.write|eval\(|new Function|localStorage", text)
    assert text.count("\n") <= 500

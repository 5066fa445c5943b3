"""Debian's chromium without a window, driven over the DevTools protocol: real clicks, real keys, what people would see.

    with Browser() as browser:
        tab = browser.open("http://127.0.0.1:8080/ui/")
        tab.wait_text("Overview")
        tab.click("button", "Log in")

One browser serves all tests; every `open` is a context of its own, as a private window is, with nothing in common.
"""
from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

WAIT_S: Final = 60.0
MAX_TEXT: Final = 2000
LOOK_S: Final = 0.03
START_S: Final = 60.0
PHONE_PX: Final = 500
MAX_FRAME_BYTES: Final = 64 << 20            # a screenshot comes as one frame

FIND: Final = """(selector, text) => [...document.querySelectorAll(selector)].filter(one => one.checkVisibility()
    && (text === null || one.textContent.includes(text) || one.getAttribute("aria-label")?.includes(text)))"""

AIM: Final = """found => {
    if (!found || found.disabled) return null;
    globalThis.aim?.end.abort();
    const aim = globalThis.aim = {hit: false, end: new AbortController()};
    addEventListener("click", event => {
        aim.hit = found.contains(event.target);
        if (!aim.hit) { event.preventDefault(); event.stopImmediatePropagation(); }
    }, {capture: true, once: true, signal: aim.end.signal});
    found.scrollIntoView({block: "center"});
    const box = found.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2]; }"""


class Refusal(AssertionError):
    """What the browser says to a command; of a page that is being left, that it is not there."""


class Browser:
    """The process and the connection to it; `options` go to its command line.

    Raises AssertionError where chromium does not start.
    """

    def __init__(self, *options: str) -> None:
        self._options = options
        self._folder = tempfile.mkdtemp(prefix="gatehouse-browser-")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._numbers = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.tabs: dict[str, Tab] = {}

    def __enter__(self) -> Self:
        program = shutil.which("chromium")
        assert program, "the console's tests need chromium: apt-get install chromium"
        self._process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
             "--remote-debugging-port=0", f"--user-data-dir={self._folder}", *self._options, "about:blank"],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        assert self._process.stderr is not None
        for line in self._process.stderr:
            found = re.search(r"DevTools listening on (ws://\S+)", line)
            if found:
                break
        else:
            raise AssertionError("chromium did not start")
        threading.Thread(target=self._process.stderr.read, daemon=True).start()
        self._thread.start()
        self._await(self._connect(found[1]))
        return self

    def __exit__(self, *_: object) -> None:
        self._await(self._session.close())
        self._process.terminate()
        self._process.wait(START_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def open(self, url: str, width: int = 1280, height: int = 860, dark: bool = False) -> Tab:
        """A tab of its own context, loaded."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self.tabs[session] = Tab(self, session, context)
        for domain in ("Page", "Runtime", "Log"):
            tab.call(f"{domain}.enable")
        tab.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                 mobile=width < PHONE_PX)
        tab.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        tab.call("Page.navigate", url=url)
        tab.wait("location.href !== 'about:blank' && document.readyState === 'complete'")
        return tab

    def call(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        """One command of the protocol. Raises Refusal."""
        return self._await(self._call(method, session, parameters))

    async def _connect(self, url: str) -> None:
        self._session = aiohttp.ClientSession()
        self._socket = await self._session.ws_connect(url, max_msg_size=MAX_FRAME_BYTES)
        self._reading = asyncio.ensure_future(self._read())

    async def _call(self, method: str, session: str | None, parameters: dict[str, Any]) -> Any:
        self._numbers += 1
        answer = self._answers[self._numbers] = self._loop.create_future()
        frame = {"id": self._numbers, "method": method, "params": parameters}
        await self._socket.send_json(frame if session is None else {**frame, "sessionId": session})
        told = await asyncio.wait_for(answer, START_S)
        if "error" in told:
            raise Refusal(f"{method}: {told['error']}")
        return told["result"]

    async def _read(self) -> None:
        async for frame in self._socket:
            told = json.loads(frame.data)
            if "id" in told:
                self._answers.pop(told["id"]).set_result(told)
            elif told.get("sessionId") in self.tabs:
                self.tabs[told["sessionId"]].on_event(told["method"], told["params"])

    def _await(self, call: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(START_S)


class Tab:
    """One page. `said` is what it wrote to the console, `dialogs` what it opened with alert and its like."""

    def __init__(self, browser: Browser, session: str, context: str) -> None:
        self._browser = browser
        self._session = session
        self._context = context
        self.said: list[str] = []
        self.dialogs: list[str] = []

    def call(self, method: str, **parameters: Any) -> Any:
        return self._browser.call(method, self._session, **parameters)

    def on_event(self, method: str, parameters: dict[str, Any]) -> None:
        """What the browser tells of the page."""
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.said.append(str(details.get("exception", {}).get("description") or details["text"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.said.append(" ".join(str(one.get("value")) for one in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["source"] in ("security", "violation", "javascript"):
            self.said.append(parameters["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(parameters["message"])

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page, awaited where it is a promise."""
        told = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def wait(self, condition: str, what: str = "") -> Any:
        """The expression's value once it is true. Raises AssertionError with what is seen instead."""
        deadline = time.monotonic() + WAIT_S
        while True:
            with suppress(Refusal):
                value = self.evaluate(condition)
                if value or value == {}:             # which is how an element comes across
                    return value
            if time.monotonic() > deadline:
                raise AssertionError(f"never: {what or condition}; said {self.said}; seen:\n{self.text()[:MAX_TEXT]}")
            time.sleep(LOOK_S)

    def text(self, selector: str = "body") -> str:
        """What people read in the first such element; \"\" where there is none."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def wait_text(self, text: str, selector: str = "body") -> None:
        """Return once an element has this text."""
        self.wait(f"({FIND})({json.dumps(selector)}, null).some(one => one.innerText.includes({json.dumps(text)}))",
                  f"{text!r} in {selector}")

    def wait_gone(self, text: str, selector: str = "body") -> None:
        """Return once none of these elements has this text."""
        self.wait(f"!({FIND})({json.dumps(selector)}, null).some(one => one.innerText.includes({json.dumps(text)}))",
                  f"no {text!r} in {selector}")

    def wait_seen(self, selector: str, text: str) -> None:
        """Return once an element with this text or label is there."""
        self.wait(f"({FIND})({json.dumps(selector)}, {json.dumps(text)}).length > 0", f"a {selector} with {text!r}")

    def click(self, selector: str, text: str | None = None) -> None:
        """The mouse on the middle of the first element that is seen and has this text or label.

        A page that moved meanwhile has something else there: nothing comes of that click, and it is aimed anew.
        """
        deadline = time.monotonic() + WAIT_S
        what = f"a {selector} with {text!r} to click"
        hit = None
        while not hit:
            assert time.monotonic() < deadline, f"never: {what}"
            place = self.wait(f"({AIM})(({FIND})({json.dumps(selector)}, {json.dumps(text)})[0])", what)
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)
            hit = self.evaluate("globalThis.aim.hit")

    def type(self, label: str, text: str) -> None:
        """Into the field with this label, in the place of what is there."""
        self.wait(f"""(() => {{
            const named = [...document.querySelectorAll("label")]
                .find(one => one.textContent.startsWith({json.dumps(label)}));
            const field = named ? document.getElementById(named.htmlFor)
                : document.querySelector(`[aria-label^="${{{json.dumps(label)}}}"]`);
            if (!field) return false;
            field.focus();
            field.select?.();
            return document.activeElement === field;
        }})()""", f"a field {label!r}")
        self.call("Input.insertText", text=text)

    def go(self, place: str) -> None:
        """To another page of the console; returns once it is shown."""
        self.evaluate(f"location.hash = '#/' + {json.dumps(place)}")
        page = json.dumps(place.partition("/")[0])
        self.wait(f"document.querySelector('nav [aria-current]')?.dataset.page === {page}", f"the page {place}")

    def press(self, key: str, code: int) -> None:
        """One key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                      text="\r" if key == "Enter" and kind == "keyDown" else "")

    def overflows(self) -> bool:
        """Whether the page is wider than its window."""
        return bool(self.evaluate("document.documentElement.scrollWidth > innerWidth"))

    def screenshot(self, file: Path) -> None:
        """What is seen, as PNG."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """With its context."""
        self._browser.tabs.pop(self._session)
        self._browser.call("Target.disposeBrowserContext", browserContextId=self._context)

"""Headless Chromium by the WebDriver protocol: what a page really shows, as pixels and as text."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.kit import PATIENCE_S

DRIVER = os.environ.get("HARNESS_CHROMEDRIVER") or shutil.which("chromedriver")
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync --hide-scrollbars "
    "--disable-background-networking --disable-component-update --disable-dev-shm-usage"
)
# A script that ends when what was changed is drawn.
FRAME = "return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's key of an element


class Browser:
    """One window."""

    def __init__(self, client: httpx.Client, session: str) -> None:
        self._client, self._session = client, session

    def _call(self, method: str, path: str, **body: Any) -> Any:
        sent = None if method == "GET" else body
        answer = self._client.request(method, f"/session/{self._session}/{path}", json=sent)
        assert answer.is_success, answer.text[:1000]
        return answer.json()["value"]

    def open(self, page: Path) -> None:
        """Open a file and wait until it is loaded."""
        self._call("POST", "url", url=page.absolute().as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that a JavaScript function body returns."""
        return self._call("POST", "execute/sync", script=script, args=arguments)

    @contextmanager
    def printed(self, page: Path, width: int, scheme: str = "light") -> Iterator[None]:
        """The page as on paper of this width in CSS pixels, drawn for a screen and not resized again."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        source = "window.ResizeObserver = class { observe() {} }"
        script = self._chromium("Page.addScriptToEvaluateOnNewDocument", source=source)["identifier"]
        self._chromium("Emulation.setEmulatedMedia", features=features)
        self.open(page)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._chromium("Emulation.setEmulatedMedia", media="print", features=features)
        self._chromium("Emulation.setDeviceMetricsOverride", **size)
        self.run(FRAME)
        try:
            yield
        finally:
            self._chromium("Emulation.clearDeviceMetricsOverride")
            self._chromium("Emulation.setEmulatedMedia", media="")
            self._chromium("Page.removeScriptToEvaluateOnNewDocument", identifier=script)

    def _chromium(self, command: str, **parameters: Any) -> Any:
        return self._call("POST", "goog/cdp/execute", cmd=command, params=parameters)

    def click(self, selector: str) -> None:
        """Click the middle of the first element."""
        found = self._call("POST", "element", using="css selector", value=selector)
        self._call("POST", f"element/{found[_ELEMENT]}/click")

    def drag(self, selector: str, begin: float, end: float) -> None:
        """Drag across an element, from and to parts of its width."""
        where = "const r = document.querySelector(arguments[0]); r.scrollIntoView({block: 'center'});"
        where += "const b = r.getBoundingClientRect(); return [b.x, b.width, b.y + b.height / 2]"
        x, width, y = self.run(where, selector)
        press, release = {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}
        first, *rest = (
            {"type": "pointerMove", "duration": 50, "x": int(x + part * width), "y": int(y)}
            for part in (begin, (begin + end) / 2, end)
        )
        mouse: dict[str, Any] = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}}
        mouse["actions"] = [first, press, *rest, release]
        self._call("POST", "actions", actions=[mouse])


def _start_driver(program: str) -> tuple[subprocess.Popen[str], str]:
    """chromedriver and its port. It ends at once if another program has the port that it chose."""
    command = [program, "--port=0"]
    for _ in range(5):
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert driver.stdout is not None
        said = []
        for line in driver.stdout:
            said.append(line)
            if found := re.search(r"successfully on port (\d+)", line):
                return driver, found[1]
        driver.wait()
    raise OSError(f"{program} does not start: {''.join(said)}")


@contextmanager
def browser() -> Iterator[Browser]:
    """A window of 1200 by 900 that closes with the context."""
    assert DRIVER is not None
    with tempfile.TemporaryDirectory() as profile:
        driver, port = _start_driver(DRIVER)
        try:
            flags = [*_FLAGS.split(), f"--user-data-dir={profile}", "--window-size=1200,900"]
            wanted = {"alwaysMatch": {"goog:chromeOptions": {"args": flags}}}
            url = f"http://127.0.0.1:{port}"
            with httpx.Client(base_url=url, timeout=PATIENCE_S, trust_env=False) as client:
                session = client.post("/session", json={"capabilities": wanted}).raise_for_status().json()
                name = session["value"]["sessionId"]
                yield Browser(client, name)
                client.delete(f"/session/{name}")
        finally:
            driver.terminate()
            driver.wait()

"""Debian's Firefox, driven through Marionette, which is Firefox's own protocol: Playwright cannot drive this Firefox
yet.

https://firefox-source-docs.mozilla.org/testing/marionette/Protocol.html
"""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from fairlead_testing.running.browser_site import RunningSite, session_cookie
from fairlead_testing.waiting import PATIENCE_SECONDS

UNPACKED = Path(__file__).parents[4] / ".venv-tools" / "firefox" / "firefox-esr"
FIREFOX = shutil.which("firefox-esr") or (str(UNPACKED) if UNPACKED.exists() else None)
"""The path of Firefox, which scripts/ensure-firefox.sh finds or installs; None if there is none."""
OLDEST = 153
"""The oldest usable release. In older releases, a driver can set neither the language nor the preference for less
motion.
"""
KEYS = {
    "Shift": "\ue008",
    "Control": "\ue009",
    "Tab": "\ue004",
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "End": "\ue010",
    "Home": "\ue011",
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
}
"""WebDriver's character for each key, by the key's name."""
_OVERRIDES = {
    "color_scheme": ("prefersColorSchemeOverride", "none"),
    "forced_colors": ("forcedColorsOverride", "none"),
    "reduced_motion": ("prefersReducedMotionOverride", "none"),
    "media": ("mediumOverride", ""),
    "language": ("languageOverride", ""),
}
"""For each option of `emulate`, Firefox's name of it and the value that ends the emulation."""
_PREFERENCES = {
    "marionette.port": 0,  # any free one, which is then in the profile's MarionetteActivePort
    "remote.prefs.recommended": True,  # no updates, no first-run pages, nothing that goes out
    "browser.sessionstore.resume_from_crash": False,
    "font.name-list.sans-serif.x-western": "DejaVu Sans",
}
_IN_CONTENT = """
const report = (words) => Services.cpmm.sendAsyncMessage("fairlead:trouble", words);
Cc["@mozilla.org/consoleAPI-storage;1"].getService(Ci.nsIConsoleAPIStorage).addLogEventListener(
  (event) => {
    const { level, arguments: words, innerID } = event.wrappedJSObject ?? event;
    if (level === "error" && Number.isInteger(innerID)) report("console: " + [...words].map(String).join(" "));
  },
  Cc["@mozilla.org/systemprincipal;1"].createInstance(Ci.nsIPrincipal),
);
Services.console.registerListener({ observe(one) {
  if (!(one instanceof Ci.nsIScriptError) || one.flags & Ci.nsIScriptError.warningFlag || !one.innerWindowID) return;
  report(`${one.category}: ${one.errorMessage} (${one.sourceName}:${one.lineNumber})`);
} });
Services.obs.addObserver((window) => {
  const pace = Services.cpmm.sharedData.get("fairlead:pace") ?? 1, page = Cu.waiveXrays(window), every = page.setInterval;
  if (pace !== 1) page.setInterval = Cu.exportFunction((what, ms) => every.call(page, what, ms / pace), window);
}, "content-document-global-created");
"""
_WATCH = """
const [origin, inContent] = arguments;
const found = window.fairleadTroubles = [];
const own = (address) => address.startsWith(origin) || /^(data|blob|about|resource|chrome|moz-[a-z]+):/.test(address);
Services.ppmm.addMessageListener("fairlead:trouble", ({ data }) => found.push(data));
Services.ppmm.loadProcessScript("data:application/javascript," + encodeURIComponent(inContent), true);
const ofTab = (channel, call) => { try { if (channel.QueryInterface(Ci.nsIHttpChannel).loadInfo.browsingContextID) call(channel); } catch {} };
Services.obs.addObserver((one) => ofTab(one, ({ URI }) => own(URI.spec) || found.push(`left: ${URI.spec}`)), "http-on-modify-request");
const answered = ({ URI, responseStatus }) => responseStatus < 400 || found.push(`${responseStatus}: ${URI.spec}`);
Services.obs.addObserver((one) => ofTab(one, answered), "http-on-examine-response");
"""

_SIZE = """
for (const [name, pixels] of [["width", arguments[0]], ["height", arguments[1]]]) {
  for (const one of [name, `min-${name}`, `max-${name}`]) gBrowser.selectedBrowser.style.setProperty(one, `${pixels}px`);
}
"""


class FirefoxError(Exception):
    """Firefox refused a command; the text is Firefox's."""


@dataclass
class Marionette:
    """A connection to a Firefox, which executes one command at a time."""

    connection: socket.socket
    reader: BinaryIO = field(init=False)
    sent: int = 0

    def __post_init__(self) -> None:
        self.reader = self.connection.makefile("rb")
        self._read()  # a greeting

    def send(self, command: str, **parameters: object) -> Any:
        """Send a command and return Firefox's answer.

        Raises FirefoxError if Firefox refuses the command.
        """
        self.sent += 1
        message = json.dumps([0, self.sent, command, parameters]).encode()
        self.connection.sendall(b"%d:%s" % (len(message), message))
        _, _, error, result = self._read()
        if error:
            raise FirefoxError(f"{command}: {error['error']}: {error['message']}")
        return result

    def in_page(self, script: str, *arguments: object) -> Any:
        """Run the body of a script function in the page, await it, and return its result."""
        return self.send("WebDriver:ExecuteScript", script=script, args=arguments, sandbox=None)["value"]

    def in_browser(self, script: str, *arguments: object) -> Any:
        """Run the body of a script function in Firefox's own window, with all privileges, and return its result."""
        self.send("Marionette:SetContext", value="chrome")
        try:
            return self.send("WebDriver:ExecuteScript", script=script, args=arguments, sandbox="system")["value"]
        finally:
            self.send("Marionette:SetContext", value="content")

    def _read(self) -> Any:
        length = b"".join(iter(lambda: self.reader.read(1), b":"))
        return json.loads(self.reader.read(int(length)))


@dataclass
class FirefoxPage:
    """The page in the foreground, with the methods of a Playwright page that the tests use."""

    firefox: Marionette

    def goto(self, url: str) -> None:
        self.firefox.send("WebDriver:Navigate", url=url)

    def reload(self) -> None:
        self.firefox.send("WebDriver:Refresh")

    @property
    def url(self) -> str:
        return str(self.firefox.send("WebDriver:GetCurrentURL")["value"])

    def evaluate(self, expression: str, arg: object = None) -> Any:
        """Return the value of an expression. If the value is a function, call it with `arg` and return its result."""
        return self.firefox.in_page(f"const found = ({expression}); return typeof found === 'function' ? found(arguments[0]) : found;", arg)

    def wait_for_timeout(self, timeout: float) -> None:
        time.sleep(timeout / 1000)

    def set_viewport_size(self, size: dict[str, int]) -> None:
        self.firefox.in_browser(_SIZE, size["width"], size["height"])

    def click(self, selector: str) -> None:
        self.firefox.send("WebDriver:ElementClick", id=self._element(selector))

    def fill(self, selector: str, text: str) -> None:
        """Replace the text of a field by typing."""
        element = self._element(selector)
        self.firefox.send("WebDriver:ElementClear", id=element)
        self.firefox.send("WebDriver:ElementSendKeys", id=element, text=text)

    def press(self, keys: str) -> None:
        """Press keys together: `Control+k`, `ArrowDown`, `x`."""
        letters = [KEYS.get(one, one) for one in keys.split("+")]
        actions = [{"type": "keyDown", "value": one} for one in letters] + [{"type": "keyUp", "value": one} for one in reversed(letters)]
        self.firefox.send("WebDriver:PerformActions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def emulate(self, **wanted: str | None) -> None:
        """Give the page these preferences instead of Firefox's settings; see `_OVERRIDES`. None ends the emulation."""
        for name, value in wanted.items():
            known, nothing = _OVERRIDES[name]
            self.firefox.in_browser(
                "gBrowser.selectedBrowser.browsingContext[arguments[0]] = arguments[1];", known, nothing if value is None else value
            )

    def pace(self, times: float) -> None:
        """Divide the intervals of timers by `times` on all pages that are opened from now on."""
        self.firefox.in_browser("Services.ppmm.sharedData.set('fairlead:pace', arguments[0]); Services.ppmm.sharedData.flush();", times)

    def forget(self) -> None:
        """Clear Firefox's caches, in which scripts would survive an upgrade."""
        self.firefox.in_browser("Services.cache2.clear(); ChromeUtils.clearResourceCache();")

    def print(self) -> bytes:
        """Return the page as a PDF file, in base64."""
        return str(self.firefox.send("WebDriver:Print", background=False)["value"]).encode()

    def troubles(self) -> list[str]:
        """Return the problems since the last call: errors of console, scripts and policy, refused requests, foreign
        requests.
        """
        return list(self.firefox.in_browser("return window.fairleadTroubles.splice(0);"))

    def _element(self, selector: str) -> str:
        found = self.firefox.send("WebDriver:FindElement", using="css selector", value=selector)["value"]
        return str(next(iter(found.values())))


@contextmanager
def running_firefox(site: RunningSite, role: str = "operator") -> Iterator[FirefoxPage]:
    """Yield a page of the site, signed in with this role, in a Firefox with a new profile. The page's problems are
    collected.
    """
    with TemporaryDirectory(prefix="firefox", ignore_cleanup_errors=True) as profile, _started(Path(profile)) as firefox:
        firefox.in_browser(_WATCH, site.url, _IN_CONTENT)
        page = FirefoxPage(firefox)
        page.goto(f"{site.url}/login")
        firefox.send(
            "WebDriver:AddCookie",
            cookie={"name": session_cookie(site.url), "value": f"{role}-token", "path": "/", "httpOnly": True, "sameSite": "Lax"},
        )
        yield page


@contextmanager
def _started(profile: Path) -> Iterator[Marionette]:
    assert FIREFOX is not None
    lines = (f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in _PREFERENCES.items())
    (profile / "user.js").write_text("".join(lines))
    command = [FIREFOX, "--headless", "--no-remote", "--profile", str(profile), "--marionette", "--remote-allow-system-access"]
    with (profile / "output").open("wb") as output:
        process = subprocess.Popen(command, env={**os.environ, "HOME": str(profile)}, stdout=output, stderr=output)
        try:
            yield _connected(process, profile)
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def _connected(process: subprocess.Popen[bytes], profile: Path) -> Marionette:
    port = profile / "MarionetteActivePort"
    _until(lambda: port.exists() and port.read_text().strip() != "", process, profile)
    connection = socket.create_connection(("127.0.0.1", int(port.read_text())), PATIENCE_SECONDS)
    connection.settimeout(2 * PATIENCE_SECONDS)  # longer than Firefox waits for a page
    firefox = Marionette(connection)
    session = firefox.send("WebDriver:NewSession", capabilities={})
    version = session["capabilities"]["browserVersion"]
    assert int(version.partition(".")[0]) >= OLDEST, f"Firefox {version} is older than {OLDEST}: install a newer one"
    firefox.send("WebDriver:SetTimeouts", pageLoad=PATIENCE_SECONDS * 1000, script=PATIENCE_SECONDS * 1000)
    return firefox


def _until(condition: Callable[[], bool], process: subprocess.Popen[bytes], profile: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        said = (profile / "output").read_text(errors="replace")[-2000:]
        assert process.poll() is None, f"Firefox ended with {process.returncode}: {said}"
        assert time.monotonic() < deadline, f"Firefox did not start: {said}"
        time.sleep(0.05)

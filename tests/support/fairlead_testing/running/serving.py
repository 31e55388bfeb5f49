"""`fairlead serve` for tests: a process of its own, called over HTTP, ended with Ctrl-C as a person ends it."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from fairlead_sandbox.secret_tokens import load_or_create
from fairlead_sandbox.state_directory import StateDirectory
from fairlead_testing.running.sandbox import FAIRLEAD, PYTHONPATH, ROOT, asking, patiently, until
from fairlead_testing.waiting import PATIENCE_SECONDS

POOL = "/v1/pools/default/engines"


@dataclass
class Serving:
    """A running `fairlead serve`."""

    process: "subprocess.Popen[str]"
    state: StateDirectory
    output: Path

    @property
    def said(self) -> str:
        return self.output.read_text()

    def url(self, name: str) -> str:
        note = self.state.read_run()
        assert note is not None
        return note.urls[name]

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request to the public API as admin; repeat it while the answer says to try again later."""
        headers = {"authorization": f"Bearer {load_or_create(self.state.secrets).admin}"}
        return patiently(lambda: asking().request(method, self.url("api") + path, headers=headers, **options))

    def ask(self, path: str, **query: str | int) -> Any:
        answer = self.request("GET", path, params=query)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:300]}"
        return answer.json()

    def states(self) -> dict[str, str]:
        """Return the state of each engine by its name; engines that are gone are left out."""
        if self.request("GET", POOL).status_code == 404:
            return {}  # its file is read, but nothing is stored of it yet
        return {one["id"]: one["state"] for one in self.ask(f"{POOL}/instances", limit=100)["items"] if one["state"] != "Gone"}

    def until_states(self, **wanted: str) -> None:
        """Wait until the engines are exactly these, in these states."""
        until(lambda: self.states() == wanted, f"engines {wanted}")

    def page(self, path: str) -> str:
        """Return a page's HTML for a person who signed in with a link; the page is requested again while the API is too
        slow.
        """
        made = self.request("POST", "/v1/login-links", json={"role": "admin"})
        assert made.status_code in {200, 201}, made.text
        with httpx.Client(base_url=self.url("api"), trust_env=False, timeout=PATIENCE_SECONDS, follow_redirects=True) as browser:
            entered = browser.get(made.json()["path"])
            form = dict(re.findall(r'name="([^"]+)" value="([^"]*)"', entered.text))
            if form:
                browser.post("/login", data=form, headers={"origin": self.url("api"), "sec-fetch-site": "same-origin"})
            answer = until(lambda: found if (found := browser.get(path)).status_code != 503 else None, f"{path} is shown")
        assert answer.status_code == 200, f"{path}: {answer.status_code}"
        return answer.text

    def stop(self) -> str:
        """Send SIGINT, as Ctrl-C does, and return the whole output. No process may be left."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(PATIENCE_SECONDS) == 0, self.said[-2000:]
        return self.said


@contextmanager
def serving(directory: Path, *arguments: str, command: tuple[str, ...] = (), cwd: Path = ROOT) -> Iterator[Serving]:
    """Run `fairlead serve` in `directory`, yield it when it is ready, and end it with the block unless it ended before.

    `command` runs the `fairlead` of another environment, which gets no variables of this one.
    """
    output = directory.with_suffix(".log")
    with output.open("w") as log:
        process = subprocess.Popen(
            [*(command or FAIRLEAD), "serve", "--state-dir", str(directory), *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            if command
            else {**os.environ, "PYTHONPATH": PYTHONPATH},
            cwd=cwd,
        )
    made = Serving(process, StateDirectory(root=directory.resolve()), output)

    def is_ready() -> bool:
        assert process.poll() is None, made.said[-2000:]
        return "Sign in" in made.said

    try:
        until(is_ready, "serve is ready", 3 * PATIENCE_SECONDS)
        yield made
    finally:
        if process.poll() is None:
            made.stop()

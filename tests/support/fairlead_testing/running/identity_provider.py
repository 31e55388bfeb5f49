"""A real OpenID provider (node's oidc-provider), and a process with API and web UI in which people sign in through it.

scripts/ensure-identity-provider.sh installs the provider.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
from playwright.sync_api import Page

from fairlead_testing.running.api import BOOTSTRAP
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.ports import free_port

ROOT = Path(__file__).resolve().parents[4]
SECRET = "a secret: with / all + kinds & of % letters"


@contextmanager
def running_provider(redirect_uri: str, groups: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Run the provider and yield the issuer's address. `groups` has each person's groups; all other people have
    none.
    """
    port = free_port()
    command = [str(ROOT / "scripts" / "ensure-identity-provider.sh"), "--run", str(port), redirect_uri, SECRET]
    with _running(command, {"GROUPS": json.dumps(groups)}, f"http://127.0.0.1:{port}/.well-known/openid-configuration"):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def running_host(database_url: str, port: int, environment: Mapping[str, str]) -> Iterator[str]:
    """Run API and web UI in one process and yield their address."""
    command = [sys.executable, "-m", "fairlead_host", "--port", str(port), "--wait-for-database", "60"]
    variables = {
        "FAIRLEAD_DATABASE_URL": database_url,
        "FAIRLEAD_BOOTSTRAP_TOKENS": ",".join(":".join(token) for token in BOOTSTRAP),
        "FAIRLEAD_SIMULATION_PROCESSES": "0",
        **environment,
    }
    with _running(command, variables, f"http://127.0.0.1:{port}/readyz"):
        yield f"http://127.0.0.1:{port}"


def sign_in_at_provider(page: Page, name: str) -> None:
    """Sign in on the provider's own pages with a name and any password, and consent to share the identity."""
    page.fill("input[name=login]", name)
    page.fill("input[name=password]", "any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()


@contextmanager
def _running(command: Sequence[str], environment: Mapping[str, str], ready: str) -> Iterator[None]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")}
    process = subprocess.Popen(command, env={**inherited, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not _answers(ready):
            assert process.poll() is None, f"{command} ended: {process.stdout.read() if process.stdout else ''}"
            assert time.monotonic() < deadline, f"{command} does not answer"
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False

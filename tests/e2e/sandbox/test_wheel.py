"""The built wheels, installed in a bare environment, in an empty folder: `fairlead up` and `fairlead serve` work there.

A wheel is made from its sdist, so that both are whole. Dependencies are the locked ones, mostly from uv's cache.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from fairlead_testing.running.engine import engine_starter
from fairlead_testing.running.sandbox import ROOT, until
from fairlead_testing.running.serving import serving
from fairlead_testing.waiting import PATIENCE_SECONDS

UV = Path(sys.executable).parent / "uv"
BARE = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=BARE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def fairlead(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the command of a new environment that has only the wheels and their dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    run(UV, "build", "--quiet", "--all-packages", "--out-dir", folder / "dist", ROOT, cwd=folder)
    needed = run(UV, "export", "--quiet", "--frozen", "--extra", "sandbox", "--no-dev", "--no-emit-workspace", cwd=ROOT)
    (folder / "requirements.txt").write_text(needed)
    run(UV, "venv", "--quiet", "--python", sys.executable, folder / "env", cwd=folder)
    install = (UV, "pip", "install", "--quiet", "--python", folder / "env/bin/python")
    run(*install, "--require-hashes", "-r", folder / "requirements.txt", cwd=folder)
    for name in ("processkube", "fairlead"):
        [wheel] = (folder / "dist").glob(f"{name}-*.whl")
        run(*install, "--no-deps", f"{name} @ {wheel.as_uri()}", cwd=folder)
    return folder / "env/bin/fairlead"


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def is_answered(gateway: str, model: str) -> bool:
    body = {"model": model, "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}
    answer = httpx.post(f"{gateway}/v1/chat/completions", json=body, timeout=PATIENCE_SECONDS, trust_env=False)
    return answer.status_code == 200


def test_fairlead_up_serves_a_request(fairlead: Path, empty: Path) -> None:
    try:
        run(fairlead, "up", "--detach", "--no-load", cwd=empty)
        urls = json.loads((empty / ".fairlead/run.json").read_text())["urls"]
        until(lambda: is_answered(urls["router-0"], "Qwen/Qwen3-32B"), "a request is served")
        login = httpx.get(f"{urls['api']}/login", timeout=PATIENCE_SECONDS, trust_env=False)
        assert login.status_code == 200, "pages have their templates"
    finally:
        run(fairlead, "down", cwd=empty)


def test_fairlead_serve_serves_a_request(fairlead: Path, empty: Path) -> None:
    with engine_starter() as start, serving(empty / "state", "--engine", start().url, command=(str(fairlead),), cwd=empty) as running:
        until(lambda: is_answered(running.url("router-0"), "m"), "a request is served")

"""A small Kopf operator: its handlers run, its finalizer holds, its children follow their parent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from processkube.kubernetes_api.serving.server import RunningServer
from processkube.testing.waiting import PATIENCE_SECONDS

OPERATOR = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.persistence.finalizer = "acme.dev/operator"

@kopf.on.create("acme.dev", "v1", "widgets")
def create(body, spec, patch, namespace, name, **_):
    kopf.info(body, reason="Created", message=f"made {name}")
    patch.status["phase"] = "Created"
    return {"image": spec["image"]}

@kopf.on.update("acme.dev", "v1", "widgets", field="spec.replicas")
def update(old, new, patch, **_):
    patch.status["phase"] = f"Scaled {old} to {new}"

@kopf.on.delete("acme.dev", "v1", "widgets")
def delete(name, logger, **_):
    logger.info(f"handled the deletion of {name}")
"""


def until(read: Callable[[], Any], wanted: Callable[[Any], bool], seconds: float = PATIENCE_SECONDS) -> Any:
    end = time.monotonic() + seconds
    while not wanted(found := read()):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


@pytest.fixture
def operator(server: RunningServer, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """Yield the log of an operator that runs as long as the test."""
    source, log = tmp_path / "widget_operator.py", tmp_path / "operator.log"
    source.write_text(OPERATOR)
    environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig)}
    command = [sys.executable, "-m", "kopf", "run", str(source), "--namespace", namespace]
    with log.open("w") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as child:
        yield log
        child.terminate()
        try:
            assert child.wait(PATIENCE_SECONDS) == 0
        finally:
            child.kill()


def test_an_operator_lives_with_this_server(operator: Path, api: httpx.Client, core: str, widgets: str) -> None:
    api.post(widgets, json={"metadata": {"name": "a"}, "spec": {"image": "x:1"}})
    created = until(lambda: api.get(f"{widgets}/a").json(), lambda item: item.get("status", {}).get("phase") == "Created")
    assert created["metadata"]["finalizers"] == ["acme.dev/operator"]
    assert created["status"]["create"] == {"image": "x:1"}
    events = until(lambda: api.get(f"{core}/events").json()["items"], bool)
    assert [(event["reason"], event["message"], event["involvedObject"]["name"]) for event in events] == [("Created", "made a", "a")]

    headers = {"Content-Type": "application/merge-patch+json"}
    api.patch(f"{widgets}/a", content=json.dumps({"spec": {"replicas": 3}}), headers=headers)
    until(lambda: api.get(f"{widgets}/a").json()["status"]["phase"], lambda phase: phase == "Scaled 1 to 3")

    owner = {"apiVersion": "acme.dev/v1", "kind": "Widget", "name": "a", "uid": created["metadata"]["uid"]}
    api.post(f"{core}/configmaps", json={"metadata": {"name": "child", "ownerReferences": [owner]}})
    api.delete(f"{widgets}/a")
    until(lambda: api.get(f"{widgets}/a").status_code, lambda code: code == 404)
    until(lambda: api.get(f"{core}/configmaps/child").status_code, lambda code: code == 404)
    assert "handled the deletion of a" in operator.read_text()
    assert "Traceback" not in operator.read_text()

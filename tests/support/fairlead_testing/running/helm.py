"""Helm itself: the library of version 4, called in this process. scripts/ensure-helm.sh installs it."""

import asyncio
import base64
import gzip
import importlib
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.clients import KubernetesClient

ROOT = Path(__file__).resolve().parents[4]
CHART = ROOT / "helm" / "fairlead"
_LIBRARY = ROOT / ".venv-tools" / "helm"

Document = dict[str, Any]


class _AsHelmReads(yaml.CSafeLoader):
    """A YAML loader that reads 1e3 as a number, as Helm does; PyYAML's own loaders read it as a string."""


_AsHelmReads.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789"))


class HelmRefused(Exception):
    """Helm ended with an error; the text is Helm's."""


def helm_is_installed() -> bool:
    """Return whether scripts/ensure-helm.sh has installed Helm's library, which exists only for Linux on x86-64."""
    return (_LIBRARY / "installed.txt").exists()


def helm_library() -> ModuleType:
    """Return Helm's package from a folder of its own; skips the test if it is not installed."""
    if not helm_is_installed():
        pytest.skip("Helm's library is not installed: run scripts/ensure-helm.sh (Linux on x86-64 only)")
    if str(_LIBRARY) not in sys.path:
        sys.path.append(str(_LIBRARY))
    return importlib.import_module("helm_sdkpy")


@dataclass(frozen=True, slots=True)
class Release:
    """A release as Helm stored it: the rendered manifests, and the hooks separately."""

    status: str
    manifests: list[Document]
    hooks: list[Document]
    notes: str
    version: int

    def every(self) -> list[Document]:
        return self.manifests + self.hooks


class Helm:
    """Helm with a kubeconfig and a namespace."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._library = helm_library()
        self.namespace = namespace
        self._configuration = self._library.Configuration(namespace=namespace, kubeconfig=str(kubeconfig))
        self._client = KubernetesClient.of(str(kubeconfig))

    def lint(self, chart: Path = CHART) -> list[Document]:
        """Return the messages of Helm's lint, each with `Severity` (1 = information, 2 = warning, 3 = error)."""
        found: Document = self._run("Lint", str(chart))
        return list(found["Messages"] or [])

    def install(self, release: str, values: Document, chart: Path = CHART, **options: Any) -> None:
        self._run("Install", release, str(chart), values=values, **({"wait": False} | options))

    def upgrade(self, release: str, values: Document, chart: Path = CHART, **options: Any) -> None:
        self._run("Upgrade", release, str(chart), values=values, **({"wait": False} | options))

    def rollback(self, release: str, revision: int) -> None:
        self._run("Rollback", release, revision=revision)

    def uninstall(self, release: str) -> None:
        self._run("Uninstall", release, wait=False)

    def releases(self) -> list[Document]:
        found: list[Document] = self._run("List", all=True) or []
        return found

    def _run(self, action: str, *arguments: Any, **options: Any) -> Any:
        made = getattr(self._library, action)(self._configuration)
        try:
            return asyncio.run(made.run(*arguments, **options))
        except self._library.HelmError as error:
            raise HelmRefused(str(error)) from error


def stored_release(client: KubernetesClient, namespace: str, release: str, version: int) -> Release | None:
    """Return the release that Helm stored in a Secret; None if there is no such Secret."""
    path = f"{client.server}/api/v1/namespaces/{namespace}/secrets/sh.helm.release.v1.{release}.v{version}"
    answer = client.session.get(path, timeout=PATIENCE_SECONDS)
    if answer.status_code == 404:
        return None
    packed = base64.b64decode(base64.b64decode(answer.json()["data"]["release"]))
    document = json.loads(gzip.decompress(packed))
    hooks = [yaml.load(hook["manifest"], _AsHelmReads) for hook in document.get("hooks") or []]
    manifests = [one for one in yaml.load_all(document["manifest"], _AsHelmReads) if one]
    info = document["info"]
    return Release(status=info["status"], manifests=manifests, hooks=hooks, notes=info.get("notes", ""), version=document["version"])

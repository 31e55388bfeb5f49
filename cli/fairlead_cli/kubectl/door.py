"""The connection to the control API through the API server, with kubectl's context, namespace and token."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from fairlead.errors import InvalidInput
from fairlead_client.client import ControlApi
from fairlead_client.tls import client_context

USUAL_SERVICE = "fairlead-system/fairlead-api:http"
START_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlace:
    """The port of a Service, in the notation of the API server's service proxy."""

    namespace: str
    name: str
    port: str

    @staticmethod
    def parse(text: str) -> "ServicePlace":
        """Parse `NAMESPACE/NAME:PORT`. Raises ValueError."""
        namespace, slash, rest = text.partition("/")
        name, colon, port = rest.partition(":")
        if not (namespace and slash and name and colon and port) or {"/", ":"} & {*port, *name}:
            raise ValueError("write NAMESPACE/NAME:PORT, such as fairlead-system/fairlead-api:http")
        return ServicePlace(namespace=namespace, name=name, port=port)

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/services/{self.name}:{self.port}/proxy"


class Door:
    """Asks kubectl for its configuration, at most once and only if needed, and opens the connection to a Service.

    `options`: kubectl's own options, such as `--context`.
    `token`: the token for the control API; None = the token of kubectl's user.
    """

    def __init__(self, options: tuple[str, ...], place: ServicePlace) -> None:
        self._options = options
        self._place = place

    @cached_property
    def _view(self) -> Mapping[str, Any]:
        found = self._run("config", "view", "--minify", "--raw", "-o", "json")
        return json.loads(found or "{}") or {}

    @property
    def namespace(self) -> str | None:
        """The namespace of kubectl's context; None if the context names no namespace."""
        contexts = self._view.get("contexts") or [{}]
        return (contexts[0].get("context") or {}).get("namespace")

    @property
    def token(self) -> str | None:
        """The token of kubectl's user; None if the user's configuration has no token, because another way of signing in
        is used.
        """
        user = ((self._view.get("users") or [{}])[0]).get("user") or {}
        if file := user.get("tokenFile"):
            return Path(file).read_text(encoding="utf-8").strip()
        return user.get("token") or None

    @contextmanager
    def opened(self, token: str | None) -> Iterator[ControlApi]:
        """Yield a client of the control API that uses a `kubectl proxy`, which runs until the block ends. Raises
        ClickException.
        """
        with tempfile.TemporaryDirectory(prefix="fairlead-") as folder:
            socket = Path(folder) / "proxy"
            accepted = f"^{self._place.path}/"
            command = [*self._command("proxy"), f"--unix-socket={socket}", f"--accept-paths={accepted}", "--reject-methods=^$"]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                assert process.stdout is not None
                if not process.stdout.readline().startswith("Starting to serve"):
                    raise _refused("proxy", process.communicate(timeout=START_SECONDS)[1])
                yield through_socket(socket, self._place.path, token or self.token)
            finally:
                process.kill()
                process.communicate()

    def _command(self, *words: str) -> list[str]:
        if (kubectl := shutil.which("kubectl")) is None:
            raise click.ClickException("kubectl is not on PATH; install it, or use `fairlead` with --url")
        return [kubectl, *self._options, *words]

    def _run(self, *words: str) -> str:
        done = subprocess.run(self._command(*words), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise _refused(words[0], done.stderr)
        return done.stdout


def through_socket(socket: Path, path: str, token: str | None) -> ControlApi:
    """Return a client of the control API at `path` on the server of a Unix socket."""
    import httpx

    transport = httpx.AsyncHTTPTransport(uds=os.fspath(socket), verify=client_context())
    return ControlApi(f"http://localhost{path}", token, transport, timeout_seconds=30.0, own_header=True)


def place_of(_context: click.Context, _option: click.Parameter, text: str) -> ServicePlace:
    """Parse the value of `--service`. Raises InvalidInput."""
    try:
        return ServicePlace.parse(text)
    except ValueError as remedy:
        raise InvalidInput("--service", text, str(remedy)) from None


def _refused(what: str, told: str) -> click.ClickException:
    line = (told.strip().splitlines() or ["no word why"])[-1].removeprefix("error: ")
    return click.ClickException(f"kubectl {what}: {line}; look at kubectl's configuration, or name another with --context")

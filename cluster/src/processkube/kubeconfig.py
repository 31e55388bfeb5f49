"""Reads the current context of a kubeconfig: the server, its certificate authority, and the client's credentials."""

import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from processkube.errors import ProcesskubeError
from processkube.yaml_documents import complaint, read_yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConnection:
    """The address of a Kubernetes API and the credentials for it. `server` is a base URL; `tls` is None for plain HTTP;
    `token` is a bearer token, None without one. `authority` is the certificate of the authority that the kubeconfig
    names, in PEM; empty if it names none.
    """

    server: str
    tls: ssl.SSLContext | None
    token: str | None
    authority: bytes = b""


def read_kubeconfig(path: Path) -> ClusterConnection:
    """Return the connection that the kubeconfig's current context describes. Raises ProcesskubeError, which names file
    and field.
    """
    try:
        document = read_yaml(path.read_bytes())
        contexts = {entry["name"]: entry["context"] for entry in document["contexts"]}
        context = contexts[document["current-context"]]
        cluster = next(entry["cluster"] for entry in document["clusters"] if entry["name"] == context["cluster"])
        user = next(entry["user"] for entry in document["users"] if entry["name"] == context["user"])
        server = str(cluster["server"]).rstrip("/")
    except OSError as problem:
        raise ProcesskubeError(f"kubeconfig {path}: cannot be read ({problem.strerror})") from None
    except yaml.YAMLError as problem:
        raise ProcesskubeError(f"kubeconfig {path}: is not YAML ({complaint(problem)})") from None
    except (KeyError, TypeError, StopIteration) as problem:
        missing = f"{problem.args[0]!r} is missing" if isinstance(problem, KeyError) else "its cluster or user is missing"
        raise ProcesskubeError(f"kubeconfig {path}: no usable current context ({missing})") from None
    for unsupported in ("exec", "auth-provider", "username"):
        if unsupported in user:
            raise ProcesskubeError(
                f"kubeconfig {path}: users[].user.{unsupported} is not supported here; use a token or a client certificate"
            )
    token = user.get("token")
    if token is None and "tokenFile" in user:
        token = (path.parent / user["tokenFile"]).read_text(encoding="utf-8").strip()
    tls = _tls(path, cluster, user) if server.startswith("https:") else None
    return ClusterConnection(server=server, tls=tls, token=token, authority=_authority(path, cluster))


def _authority(path: Path, cluster: Mapping[str, Any]) -> bytes:
    """Return the certificate authority in PEM; empty if the kubeconfig names none. `_tls` has already checked that it
    is readable.
    """
    if "certificate-authority-data" in cluster:
        return base64.b64decode(cluster["certificate-authority-data"])
    return (path.parent / cluster["certificate-authority"]).read_bytes() if "certificate-authority" in cluster else b""


def _tls(path: Path, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context()
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif "certificate-authority-data" in cluster:
            context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        elif "certificate-authority" in cluster:
            context = ssl.create_default_context(cafile=path.parent / cluster["certificate-authority"])
        if "client-certificate" in user:
            context.load_cert_chain(path.parent / user["client-certificate"], path.parent / user["client-key"])
        elif "client-certificate-data" in user:
            raise ProcesskubeError(
                f"kubeconfig {path}: client-certificate-data is not supported here; use client-certificate (a file) or a token"
            )
    except (OSError, ValueError, KeyError) as problem:
        why = f": {problem.strerror}" if isinstance(problem, OSError) and problem.strerror else ""
        raise ProcesskubeError(f"kubeconfig {path}: its certificates cannot be used{why}") from None
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as kubectl: authorities need no key usage, no identifiers
    return context

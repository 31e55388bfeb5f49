"""The caller of an aggregated API, and whether it may ask: both are the Kubernetes API's to say.

As an extension API server does (`k8s.io/apiserver`, `DelegatingAuthenticationOptions` and `…AuthorizationOptions`): the
API server's front proxy shows a certificate of the authority in the ConfigMap `extension-apiserver-authentication`, and
names its caller in headers, which count from nobody else. Any other caller shows a token, which a TokenReview judges.
What a caller may do, a SubjectAccessReview says; the group `system:masters` may all.
"""

import logging
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import msgspec

from fairlead.errors import InvalidInput
from fairlead_api.infra.errors import ServiceError
from fairlead_api.infra.kubernetes import Kubernetes
from fairlead_process.certificates import Certificate

AUTHENTICATION = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

KEPT_SECONDS = 10.0
"""How long an answer about a token or a right counts, as in Kubernetes."""
MOST_KEPT = 1000
MASTERS = "system:masters"
ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED = "system:anonymous", "system:authenticated", "system:unauthenticated"

Headers = Sequence[tuple[bytes, bytes]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Somebody whom the Kubernetes API knows."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontProxy:
    """How the API server's front proxy shows itself and names its callers. No `allowed_names` means any."""

    authorities: str = ""
    allowed_names: tuple[str, ...] = ()
    user_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()


def front_proxy(data: Mapping[str, str]) -> FrontProxy:
    """From the ConfigMap's data; a list that cannot be read is empty, so nobody is known by it."""
    return FrontProxy(
        authorities=data.get("requestheader-client-ca-file", ""),
        allowed_names=_names(data, "requestheader-allowed-names"),
        user_headers=_names(data, "requestheader-username-headers"),
        uid_headers=_names(data, "requestheader-uid-headers"),
        group_headers=_names(data, "requestheader-group-headers"),
        extra_prefixes=_names(data, "requestheader-extra-headers-prefix"),
    )


def _names(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    try:
        return tuple(name.strip() for name in msgspec.json.decode(data.get(key) or "[]", type=list[str]))
    except msgspec.MsgspecError:
        return ()


def common_name(certificate: Mapping[str, Any] | None) -> str | None:
    """The subject's common name, of a certificate as `ssl.SSLSocket.getpeercert` gives it."""
    subject = (certificate or {}).get("subject", ())
    return next((value for part in subject for name, value in part if name == "commonName"), None)


def user_by_headers(proxy: FrontProxy, certificate: Mapping[str, Any] | None, headers: Headers) -> User | None:
    """The caller whom the front proxy names; None unless the certificate, which TLS has verified, is that proxy's."""
    name = common_name(certificate)
    if not proxy.authorities or not certificate or (proxy.allowed_names and name not in proxy.allowed_names):
        return None
    given = [(name.decode("latin-1").lower(), value.decode("utf-8", "replace")) for name, value in headers]
    user = _first(given, proxy.user_headers)
    if not user:
        return None
    groups = with_authenticated(user, [value for wanted in proxy.group_headers for value in _all(given, wanted) if value])
    return User(name=user, uid=_first(given, proxy.uid_headers), groups=groups, extra=_extra(given, proxy.extra_prefixes))


def with_authenticated(name: str, groups: Sequence[str]) -> tuple[str, ...]:
    """A known user's groups, with that of all known users where it is missing, as `k8s.io/apiserver` adds it: the API
    server's own parts name no group when they ask what there is, and only this one gives them the right to.
    """
    is_known = name != ANONYMOUS and AUTHENTICATED not in groups and UNAUTHENTICATED not in groups
    return (*groups, AUTHENTICATED) if is_known else tuple(groups)


def _all(given: Sequence[tuple[str, str]], wanted: str) -> list[str]:
    return [value for name, value in given if name == wanted.lower()]


def _first(given: Sequence[tuple[str, str]], wanted: Sequence[str]) -> str:
    return next((value for one in wanted for value in _all(given, one)[:1] if value), "")


def _extra(given: Sequence[tuple[str, str]], prefixes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for prefix in prefixes:
        for name, value in given:
            if name.startswith(prefix.lower()):
                key = unquote(name.removeprefix(prefix.lower()))
                found[key] = (*found.get(key, ()), value)
    return found


class Kept:
    """Answers of the last KEPT_SECONDS, at most MOST_KEPT of them."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._known: dict[Any, tuple[float, Any]] = {}

    def get(self, key: Any) -> Any:
        """The answer, None if there is none that is young enough."""
        at, answer = self._known.get(key, (float("-inf"), None))
        return answer if self._now() - at < KEPT_SECONDS else None

    def keep(self, key: Any, answer: Any) -> Any:
        """Keeps it, and returns it."""
        if len(self._known) >= MOST_KEPT:
            self._known.clear()
        self._known[key] = (self._now(), answer)
        return answer


class Delegation:
    """Asks the Kubernetes API who somebody is and what they may do. `certificate` is the port's, whose TLS verifies the
    front proxy's.
    """

    def __init__(self, cluster: Kubernetes, certificate: Certificate, now: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._certificate = certificate
        self._proxy = FrontProxy()
        self._users = Kept(now)
        self._rights = Kept(now)
        self._told = ""

    @property
    def is_known(self) -> bool:
        """Whether it is known how the front proxy shows itself."""
        return bool(self._proxy.authorities)

    async def refresh(self) -> None:
        """Read how the front proxy shows itself; what was known stays while the Kubernetes API does not say it."""
        try:
            found = await self._cluster.ask("GET", AUTHENTICATION)
            proxy = front_proxy((found or {}).get("data") or {})
            self._certificate.trust(proxy.authorities)
        except (ServiceError, InvalidInput, ssl.SSLError) as error:
            self._tell(f"how the Kubernetes API shows itself is not known: {error}")
            return
        self._proxy = proxy
        self._tell("" if proxy.authorities else "kube-system/extension-apiserver-authentication names no requestheader-client-ca-file")

    def _tell(self, problem: str) -> None:
        if problem and problem != self._told:
            _log.warning("external metrics: nobody is let in by the Kubernetes API's certificate", extra={"error": problem})
        self._told = problem

    async def user_of(self, certificate: Mapping[str, Any] | None, headers: Headers) -> User | None:
        """The caller; None if it is not known. Raises ClusterUnavailable, Denied."""
        named = user_by_headers(self._proxy, certificate, headers)
        if named is not None:
            return named
        given = next((value.decode("latin-1") for name, value in headers if name == b"authorization"), "")
        kind, _, token = given.partition(" ")
        return await self._by_token(token.strip()) if kind.lower() == "bearer" and token.strip() else None

    async def _by_token(self, token: str) -> User | None:
        known = self._users.get(token)
        if known is None:
            known = self._users.keep(
                token, (_user(await self._review(_TOKENS, "authentication.k8s.io/v1", "TokenReview", {"token": token})),)
            )
        found: User | None = known[0]
        return found

    async def allows(self, user: User, attributes: Mapping[str, Mapping[str, str]]) -> bool:
        """Whether the user may do what `attributes`, those of a SubjectAccessReview, say.

        Raises ClusterUnavailable, Denied.
        """
        if MASTERS in user.groups:
            return True
        extra = {name: list(values) for name, values in user.extra.items()}
        spec = {"user": user.name, "uid": user.uid, "groups": list(user.groups), "extra": extra, **attributes}
        key = msgspec.json.encode(spec)
        known = self._rights.get(key)
        if known is None:
            found = await self._review(_ACCESS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
            known = self._rights.keep(key, found.get("allowed") is True and found.get("denied") is not True)
        return bool(known)

    async def _review(self, path: str, version: str, kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        body = {"apiVersion": version, "kind": kind, "spec": dict(spec)}
        found = await self._cluster.ask("POST", path, body, content="application/json")
        return (found or {}).get("status") or {}


def _user(status: Mapping[str, Any]) -> User | None:
    user = status.get("user") or {}
    if status.get("authenticated") is not True or not user.get("username"):
        return None
    extra = {name: tuple(values or ()) for name, values in (user.get("extra") or {}).items()}
    groups = with_authenticated(user["username"], user.get("groups") or ())
    return User(name=user["username"], uid=user.get("uid") or "", groups=groups, extra=extra)

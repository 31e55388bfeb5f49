"""Lets the Kubernetes API identify the callers of an aggregated API and check their rights.

Every extension API server does the same (`k8s.io/apiserver`, `DelegatingAuthenticationOptions` and
`…AuthorizationOptions`). Most calls come through the API server's front proxy. It shows a certificate that is signed by
the authority in the ConfigMap `extension-apiserver-authentication`, and names the original caller in headers. These
headers are accepted from the front proxy only. Any other caller shows a token, which a TokenReview checks. A
SubjectAccessReview decides what a caller may do; the group `system:masters` may do everything.
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
"""Seconds for which a response about a token or a right is reused, as in Kubernetes."""
MOST_KEPT = 1000
MASTERS = "system:masters"
ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED = "system:anonymous", "system:authenticated", "system:unauthenticated"

Headers = Sequence[tuple[bytes, bytes]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user that the Kubernetes API has authenticated."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontProxy:
    """The authorities that sign the front proxy's certificate, the names allowed in that certificate, and the headers
    in which the front proxy names its callers. An empty `allowed_names` allows any name.
    """

    authorities: str = ""
    allowed_names: tuple[str, ...] = ()
    user_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()


def front_proxy(data: Mapping[str, str]) -> FrontProxy:
    """Read the front proxy's settings from the ConfigMap's data. A list that cannot be parsed counts as empty, so that
    it admits no caller.
    """
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
    """Return the subject's common name of a certificate in the form of `ssl.SSLSocket.getpeercert`."""
    subject = (certificate or {}).get("subject", ())
    return next((value for part in subject for name, value in part if name == "commonName"), None)


def user_by_headers(proxy: FrontProxy, certificate: Mapping[str, Any] | None, headers: Headers) -> User | None:
    """Return the caller whom the front proxy names in `headers`. None unless `certificate`, which TLS has verified,
    belongs to the front proxy.
    """
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
    """Return an authenticated user's groups. The group of all authenticated users is added if it is missing, as
    `k8s.io/apiserver` does. The API server's own components name no group in their discovery requests, and only this
    group gives them the right to discovery.
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
    """A cache of at most MOST_KEPT responses, each reused for KEPT_SECONDS."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._known: dict[Any, tuple[float, Any]] = {}

    def get(self, key: Any) -> Any:
        """Return the cached response for `key`; None without a response that is less than KEPT_SECONDS old."""
        at, answer = self._known.get(key, (float("-inf"), None))
        return answer if self._now() - at < KEPT_SECONDS else None

    def keep(self, key: Any, answer: Any) -> Any:
        """Cache the response `answer` under `key`, and return it."""
        if len(self._known) >= MOST_KEPT:
            self._known.clear()
        self._known[key] = (self._now(), answer)
        return answer


class Delegation:
    """Lets the Kubernetes API authenticate and authorize callers. `certificate` is the port's certificate, whose TLS
    context verifies the front proxy's certificate.
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
        """Whether the front proxy's authorities are known."""
        return bool(self._proxy.authorities)

    async def refresh(self) -> None:
        """Read the front proxy's authorities and headers. While the Kubernetes API cannot be read, the authorities and
        headers read before stay in use.
        """
        try:
            found = await self._cluster.ask("GET", AUTHENTICATION)
            proxy = front_proxy((found or {}).get("data") or {})
            self._certificate.trust(proxy.authorities)
        except (ServiceError, InvalidInput, ssl.SSLError) as error:
            self._tell(f"the front proxy's authorities could not be read: {error}")
            return
        self._proxy = proxy
        self._tell("" if proxy.authorities else "kube-system/extension-apiserver-authentication names no requestheader-client-ca-file")

    def _tell(self, problem: str) -> None:
        if problem and problem != self._told:
            _log.warning("external metrics: no caller is accepted by the Kubernetes API's certificate", extra={"error": problem})
        self._told = problem

    async def user_of(self, certificate: Mapping[str, Any] | None, headers: Headers) -> User | None:
        """Return the caller; None if the caller is unknown. Raises ClusterUnavailable, Denied."""
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
                token, (_user(await self._cluster.review(_TOKENS, "authentication.k8s.io/v1", "TokenReview", {"token": token})),)
            )
        found: User | None = known[0]
        return found

    async def allows(self, user: User, attributes: Mapping[str, Mapping[str, str]]) -> bool:
        """Return whether the user may do the action that the `attributes` of a SubjectAccessReview describe.

        Raises ClusterUnavailable, Denied.
        """
        if MASTERS in user.groups:
            return True
        extra = {name: list(values) for name, values in user.extra.items()}
        spec = {"user": user.name, "uid": user.uid, "groups": list(user.groups), "extra": extra, **attributes}
        key = msgspec.json.encode(spec)
        known = self._rights.get(key)
        if known is None:
            found = await self._cluster.review(_ACCESS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
            known = self._rights.keep(key, found.get("allowed") is True and found.get("denied") is not True)
        return bool(known)


def _user(status: Mapping[str, Any]) -> User | None:
    user = status.get("user") or {}
    if status.get("authenticated") is not True or not user.get("username"):
        return None
    extra = {name: tuple(values or ()) for name, values in (user.get("extra") or {}).items()}
    groups = with_authenticated(user["username"], user.get("groups") or ())
    return User(name=user["username"], uid=user.get("uid") or "", groups=groups, extra=extra)

"""Settings of the web UI: the control API's address, the public address of the pages, and the protection of cookies."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from fairlead.errors import InvalidInput
from fairlead_process.environment import group, read
from fairlead_process.logs import LogSettings
from fairlead_process.shared_variables import API_URLS, PUBLIC_URL
from fairlead_web.live.clusters import ClusterSettings
from fairlead_web.text.outside_links import LinkPatterns

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AloneSettings:
    """Settings of a web UI process that runs without the control API, which it calls over the network."""

    api_urls: tuple[str, ...] = field(metadata=API_URLS)
    public_url: str | None = field(default=None, metadata=PUBLIC_URL)
    links: LinkPatterns = field(default_factory=LinkPatterns, metadata=group(LinkPatterns))
    clusters: ClusterSettings = field(default_factory=ClusterSettings, metadata=group(ClusterSettings))
    logs: LogSettings = field(default_factory=LogSettings, metadata=group(LogSettings))


def read_settings(environment: Mapping[str, str]) -> AloneSettings:
    """Return the settings from environment variables. Raises InvalidInput for a missing or invalid variable."""
    return read(AloneSettings, environment)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """The web UI's settings after all checks.

    `public_url` is the address that people open (scheme, host, optional port and path prefix). With `secure_cookies`,
    cookies are `__Host-` cookies, which need TLS.
    """

    public_url: str
    secure_cookies: bool

    @property
    def origin(self) -> str:
        """`scheme://host[:port]` of the public URL, in normalized form."""
        return origin_of(self.public_url)

    @property
    def base_path(self) -> str:
        """Path prefix of every link: empty, or for example `/ops/infer`, without a slash at the end."""
        return urlsplit(self.public_url).path.rstrip("/")

    def cookie_name(self, host: str) -> str:
        """Return the name of the cookie with the session's token for requests with this Host header. Browsers send the
        cookies of a host to all its ports and paths. The name contains the port and path of this web UI, so that
        another web UI on the same host neither reads nor deletes the session.

        `__Host-` cookies need TLS; plain HTTP (loopback) uses another name, so that a cookie of one kind does not hide
        a cookie of the other.
        """
        public = urlsplit(self.public_url)
        scheme, port = (public.scheme, public.port) if not _is_loopback(host) else ("http", _port(host))
        parts = ["" if port is None or _DEFAULT_PORTS[scheme] == port else str(port), public.path.rstrip("/")]
        of_path = hashlib.sha256(parts[1].encode()).hexdigest()[:8] if parts[1] else ""
        plain = "__Host-fairlead" if self.secure_cookies else "fairlead-session"
        return "-".join(part for part in (plain, parts[0], of_path) if part)

    def attempt_cookie_name(self, host: str) -> str:
        """Return the name of the cookie of an attempt to sign in at an identity provider."""
        return f"{self.cookie_name(host)}-attempt"

    def allows_host(self, host: str) -> bool:
        """Return whether a Host header names the public host, or a loopback name with any port. Others are refused as a
        protection against DNS rebinding.
        """
        return _is_loopback(host) or origin_of(f"{urlsplit(self.public_url).scheme}://{host}") == self.origin


_DEFAULT_PORTS = {"http": 80, "https": 443}


def origin_of(url: str) -> str:
    """Return the normalized origin of a URL: scheme and host in lower case, without the scheme's default port (RFC
    9110, 4.2.3) and without the dot at the end of a full name; empty if the URL has no origin.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    host = host.removesuffix(".")
    if not host or "@" in parts.netloc or parts.netloc.strip() != parts.netloc:
        return ""
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + ("" if port is None or port == _DEFAULT_PORTS.get(parts.scheme) else f":{port}")


def _is_loopback(host: str) -> bool:
    return origin_of(f"http://{host}").removeprefix("http://").removesuffix(f":{_port(host)}") in LOOPBACK_NAMES


def _port(host: str) -> int | None:
    try:
        return urlsplit(f"http://{host}").port
    except ValueError:
        return None


def web_settings(public_url: str, secure_cookies: bool | None = None) -> WebSettings:
    """Return checked settings. If `secure_cookies` is None, the scheme of the public URL decides. Raises
    InvalidInput.
    """
    parts, origin = urlsplit(public_url), origin_of(public_url)
    if parts.scheme not in _DEFAULT_PORTS or not origin:
        raise InvalidInput("FAIRLEAD_PUBLIC_URL", public_url, "write the address people open, such as http://127.0.0.1:8080")
    secure = parts.scheme == "https" if secure_cookies is None else secure_cookies
    if secure and parts.scheme == "http" and parts.hostname not in {"localhost", "127.0.0.1", "::1"}:
        raise InvalidInput("FAIRLEAD_PUBLIC_URL", public_url, "secure cookies need https (or set secure_cookies to false)")
    return WebSettings(public_url=f"{origin}{parts.path.rstrip('/')}", secure_cookies=secure)

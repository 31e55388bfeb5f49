"""Settings of the web UI: the API's address, the public address of the pages, and the protection of cookies."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from fairlead.errors import InvalidInput
from fairlead_process.environment import group, read
from fairlead_process.logs import LogSettings
from fairlead_process.shared_variables import API_URLS, PUBLIC_URL

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AloneSettings:
    """Settings of the web UI's process where it runs alone, in front of a control API reached over the network."""

    api_urls: tuple[str, ...] = field(metadata=API_URLS)
    public_url: str | None = field(default=None, metadata=PUBLIC_URL)
    logs: LogSettings = field(default_factory=LogSettings, metadata=group(LogSettings))


def read_settings(environment: Mapping[str, str]) -> AloneSettings:
    """Settings from environment variables. Raises InvalidInput for a missing or unusable one."""
    return read(AloneSettings, environment)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """Checked settings.

    `public_url` is the address that people open (scheme, host, optional port and path prefix); `secure_cookies` asks
    for `__Host-` cookies over TLS.
    """

    public_url: str
    secure_cookies: bool

    @property
    def origin(self) -> str:
        """`scheme://host[:port]` of the public URL, lower case."""
        parts = urlsplit(self.public_url)
        return f"{parts.scheme}://{parts.netloc}".lower()

    @property
    def base_path(self) -> str:
        """Path prefix of every link: empty, or `/ops/infer` without a slash at the end."""
        return urlsplit(self.public_url).path.rstrip("/")

    @property
    def cookie_name(self) -> str:
        """`__Host-` cookies need TLS; plain HTTP (loopback) uses another name so that one never shadows the other."""
        return "__Host-fairlead" if self.secure_cookies else "fairlead-session"

    @property
    def attempt_cookie_name(self) -> str:
        """The cookie of an attempt to sign in at an identity provider."""
        return f"{self.cookie_name}-attempt"

    def allows_host(self, host: str) -> bool:
        """Whether a Host header is the public host, or a loopback name at any port. Protects against DNS rebinding."""
        lowered = host.lower()
        name = lowered if lowered.endswith("]") else lowered.rsplit(":", 1)[0] if ":" in lowered else lowered
        return lowered == urlsplit(self.public_url).netloc.lower() or name in LOOPBACK_NAMES


def web_settings(public_url: str, secure_cookies: bool | None = None) -> WebSettings:
    """Checked settings; `secure_cookies` None follows the URL's scheme. Raises InvalidInput."""
    parts = urlsplit(public_url)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise InvalidInput("FAIRLEAD_PUBLIC_URL", public_url, "write the address people open, such as http://127.0.0.1:8080")
    secure = parts.scheme == "https" if secure_cookies is None else secure_cookies
    if secure and parts.scheme == "http" and parts.hostname not in {"localhost", "127.0.0.1", "::1"}:
        raise InvalidInput("FAIRLEAD_PUBLIC_URL", public_url, "secure cookies need https (or set secure_cookies to false)")
    return WebSettings(public_url=public_url.rstrip("/"), secure_cookies=secure)

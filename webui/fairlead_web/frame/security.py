"""Protects the web UI's pages from pages of hostile sites: response headers, host allow-list, cross-site checks,
cookies.

`Shield` is raw ASGI, so that it also covers streams and responses of other middleware. It must remain the outermost
middleware.
"""

import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead_web.frame import sign_in_attempts
from fairlead_web.frame.settings import WebSettings, origin_of

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
PARTS_OF_PAGES = ("text/javascript", "text/css")
"""Content types that browsers never show as pages. Therefore the security headers that restrict frames, forms and
permissions of a page are left out of their responses.
"""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SESSION_SECONDS = 24 * 3600


def csrf_token(session_token: str, nonce: str) -> str:
    """Return a form token of one session. The form token is derived from the session's token, so nothing is stored.

    `nonce` is new for each page, so that the size of compressed pages does not reveal the token.
    """
    return f"{nonce}.{hmac.new(session_token.encode(), b'fairlead form token ' + nonce.encode(), hashlib.sha256).hexdigest()}"


def csrf_matches(session_token: str, given: str) -> bool:
    """Return whether a submitted form token belongs to the session; checked in constant time."""
    nonce = given.partition(".")[0]
    return hmac.compare_digest(csrf_token(session_token, nonce).encode(), given.encode("utf-8", "replace"))


def cross_site_refusal(method: str, headers: Mapping[str, str], scheme: str, settings: WebSettings) -> str | None:
    """Return the reason why an unsafe request does not count as coming from the web UI's own pages; None if it does.

    The header `Sec-Fetch-Site` decides. Browsers that do not send it (old ones, or over plain HTTP to a non-loopback
    host) must send the web UI's origin in `Origin`.
    """
    if method in SAFE_METHODS:
        return None
    site = headers.get("sec-fetch-site")
    if site is not None:
        return None if site == "same-origin" else f"the request came from another site (Sec-Fetch-Site: {site})"
    origin = headers.get("origin")
    if origin is None:
        return "the request names no origin (neither Sec-Fetch-Site nor Origin was sent)"
    host = headers.get("host", "")
    own = {settings.origin, origin_of(f"{scheme}://{host}"), origin_of(f"{urlsplit(settings.origin).scheme}://{host}")} - {""}
    return None if origin_of(origin) in own else f"the request came from {origin}"


class Shield:
    """Middleware that refuses foreign Host headers and cross-site writes, and adds the security headers to every
    response. Scripts and style sheets get only the security headers that affect them, because a page loads one or two
    dozen of these files, and the other headers take 350 bytes.
    """

    def __init__(self, app: ASGIApp, settings: WebSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def send_shielded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._harden(MutableHeaders(scope=message))
            await send(message)

        refusal = self._refusal(scope, headers)
        await (refusal or self._app)(scope, receive, send_shielded)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        if not self._settings.allows_host(headers.get("host", "")):
            return PlainTextResponse(
                f"This server does not answer for the host {headers.get('host', '')!r}. "
                f"Open {self._settings.public_url}, or set FAIRLEAD_PUBLIC_URL.\n",
                status_code=421,
            )
        reason = cross_site_refusal(scope["method"], headers, scope.get("scheme", "http"), self._settings)
        if reason is not None:
            return PlainTextResponse(f"Refused: {reason}. Nothing was changed; submit the form from {self._settings.public_url}.\n", 403)
        return None

    def _harden(self, headers: MutableHeaders) -> None:
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Referrer-Policy"] = "same-origin"
        headers["Cross-Origin-Resource-Policy"] = "same-origin"
        if not headers.get("Content-Type", "").startswith(PARTS_OF_PAGES):
            headers["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
            headers["X-Frame-Options"] = "DENY"
            headers["Cross-Origin-Opener-Policy"] = "same-origin"
            headers["Permissions-Policy"] = "camera=(), geolocation=(), microphone=(), payment=(), usb=()"
        headers.setdefault("Cache-Control", "no-store")
        if self._settings.origin.startswith("https:"):
            headers["Strict-Transport-Security"] = "max-age=31536000"


def host_of(request: Request) -> str:
    """Return the request's Host header."""
    return request.headers.get("host", "")


def session_of(request: Request, settings: WebSettings) -> str | None:
    """Return the session token from the browser's cookie, without checking it; None without such a cookie."""
    return request.cookies.get(settings.cookie_name(host_of(request)))


def set_session_cookie(request: Request, response: Response, settings: WebSettings, token: str) -> None:
    """Set the cookie with the session's token. The end of the session does not depend on the cookie, because the API
    ends it on the server.
    """
    name = settings.cookie_name(host_of(request))
    response.set_cookie(name, token, max_age=SESSION_SECONDS, path="/", secure=settings.secure_cookies, httponly=True, samesite="lax")


def clear_session_cookie(request: Request, response: Response, settings: WebSettings) -> None:
    """Delete the cookie with the session's token."""
    response.delete_cookie(settings.cookie_name(host_of(request)), path="/", secure=settings.secure_cookies, httponly=True, samesite="lax")


def set_attempt_cookie(request: Request, response: Response, settings: WebSettings, attempt: str) -> None:
    """Set the cookie of an attempt to sign in at an identity provider. It has SameSite=Lax, because the browser returns
    by a link from the provider's site.
    """
    response.set_cookie(
        settings.attempt_cookie_name(host_of(request)),
        attempt,
        max_age=sign_in_attempts.SECONDS,
        path="/",
        secure=settings.secure_cookies,
        httponly=True,
        samesite="lax",
    )


def clear_attempt_cookie(request: Request, response: Response, settings: WebSettings) -> None:
    response.delete_cookie(
        settings.attempt_cookie_name(host_of(request)), path="/", secure=settings.secure_cookies, httponly=True, samesite="lax"
    )


def local_path(target: str | None) -> str:
    """Return `target` if it is certainly a path of this site, to which the browser may return after a login; otherwise
    `/`.
    """
    if not target or not target.startswith("/") or target.startswith("//") or "\\" in target or any(ord(c) < 32 for c in target):
        return "/"
    return target

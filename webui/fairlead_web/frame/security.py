"""Protects our pages from hostile pages: response headers, host allow-list, cross-site checks, cookies.

`Shield` is raw ASGI, so that it also covers streams and answers of other middleware. It must stay outermost.
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
"""Content types that browsers never show as pages, so that they have no frames, forms or rights."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SESSION_SECONDS = 24 * 3600


def csrf_token(session_token: str, nonce: str) -> str:
    """Return a form token of one session. It is derived from the session, so nothing is stored.

    `nonce` is new for each page, so that compressed pages do not leak the token.
    """
    return f"{nonce}.{hmac.new(session_token.encode(), b'fairlead form token ' + nonce.encode(), hashlib.sha256).hexdigest()}"


def csrf_matches(session_token: str, given: str) -> bool:
    """Constant-time check of a submitted form token."""
    nonce = given.partition(".")[0]
    return hmac.compare_digest(csrf_token(session_token, nonce).encode(), given.encode("utf-8", "replace"))


def cross_site_refusal(method: str, headers: Mapping[str, str], scheme: str, settings: WebSettings) -> str | None:
    """Return why an unsafe request does not come from our own pages; None if it does.

    `Sec-Fetch-Site` decides. Browsers that do not send it (old ones, or plain HTTP off loopback) must send our Origin.
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
    """Refuses foreign hosts and cross-site writes, and puts the security headers on every answer. Scripts and style
    sheets get only the headers that matter for them, because a page loads a dozen or two of them, and the other headers
    take 350 bytes.
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
    """Return the session's token from the browser's cookie, unchecked; None without one."""
    return request.cookies.get(settings.cookie_name(host_of(request)))


def set_session_cookie(request: Request, response: Response, settings: WebSettings, token: str) -> None:
    """Set the cookie of the browser's session. The API's session row ends the session on the server."""
    name = settings.cookie_name(host_of(request))
    response.set_cookie(name, token, max_age=SESSION_SECONDS, path="/", secure=settings.secure_cookies, httponly=True, samesite="lax")


def clear_session_cookie(request: Request, response: Response, settings: WebSettings) -> None:
    """Delete the cookie of the browser's session."""
    response.delete_cookie(settings.cookie_name(host_of(request)), path="/", secure=settings.secure_cookies, httponly=True, samesite="lax")


def set_attempt_cookie(request: Request, response: Response, settings: WebSettings, attempt: str) -> None:
    """Set the cookie of a sign-in attempt. It has SameSite=Lax, because the identity provider's page leads back by a
    link.
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
    """Return a `next` address that cannot lead off this site; any doubtful address becomes `/`."""
    if not target or not target.startswith("/") or target.startswith("//") or "\\" in target or any(ord(c) < 32 for c in target):
        return "/"
    return target

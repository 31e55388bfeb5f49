"""One attempt to sign in at an identity provider, kept for ten minutes in a cookie of the browser that began it.

Therefore a browser cannot complete another browser's attempt with that attempt's code, and a stolen code is useless in
other browsers.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httpx

from fairlead_client.resources.access import OidcProvider

SECONDS = 600
LONGEST_TARGET = 1500
"""Maximum length in bytes of the address to which the browser returns after signing in. A longer address would not fit
into a cookie.
"""

_COOKIE = re.compile(r"([\w-]{20,100})\.([\w-]{20,100})\.([\w-]{43,128})\.([\w-]*=*)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt to sign in at an identity provider. The provider returns `state` together with the code, and `nonce`
    inside the ID token; `verifier` is the secret of PKCE (RFC 7636).
    """

    state: str
    nonce: str
    verifier: str
    target: str

    def cookie(self) -> str:
        return f"{self.state}.{self.nonce}.{self.verifier}.{base64.urlsafe_b64encode(self.target.encode()).decode()}"

    def address(self, provider: OidcProvider, redirect_uri: str) -> str:
        """Return the address of the provider to which the browser is redirected."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": provider.client_id,
            "redirect_uri": redirect_uri,
            "scope": provider.scopes,
            "state": self.state,
            "nonce": self.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return str(httpx.URL(provider.authorization_endpoint).copy_merge_params(asked))

    def refusal(self, brought: Mapping[str, str], provider: OidcProvider) -> str | None:
        """Return the reason why the query with which the browser returned contains no valid code; None if it contains a
        valid code.
        """
        if not hmac.compare_digest(self.state.encode(), brought.get("state", "").encode("utf-8", "replace")):
            return "The identity provider's answer belongs to another attempt to sign in; begin again."
        issuer = brought.get("iss")
        if issuer != provider.issuer and (issuer is not None or provider.tells_issuer):
            return "The answer is from another identity provider; begin again."
        if "error" in brought:
            more = f": {brought['error_description'][:300]}" if brought.get("error_description") else ""
            return f"The identity provider reports {brought['error'][:100]}{more}."
        return None if brought.get("code") else "The identity provider sent no code; begin again."


def begun(target: str, new_secret: Callable[[], str]) -> Attempt:
    """Return a new attempt to sign in, after which the browser returns to `target`. `new_secret` makes random text of
    256 bits that is safe in URLs.
    """
    fits = len(target.encode()) <= LONGEST_TARGET
    return Attempt(state=new_secret(), nonce=new_secret(), verifier=new_secret(), target=target if fits else "/")


def attempt_of(cookie: str | None) -> Attempt | None:
    """Return the attempt that a cookie contains; None if it contains none."""
    match = _COOKIE.fullmatch(cookie or "")
    if match is None:
        return None
    state, nonce, verifier, target = match.groups()
    try:
        return Attempt(state=state, nonce=nonce, verifier=verifier, target=base64.urlsafe_b64decode(target).decode())
    except (binascii.Error, UnicodeDecodeError):
        return None

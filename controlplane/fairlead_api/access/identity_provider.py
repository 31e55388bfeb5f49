"""Signs people in with an identity provider: OpenID Connect, authorization code with PKCE, and the checks of ID tokens
(OpenID Connect Core 1.0, section 3.1.3.7).
"""

import asyncio
import logging
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any
from urllib.parse import quote_plus

import httpx
import msgspec
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import JWKRegistry, KeySet

from fairlead_api.access.logins import Person, why_odd
from fairlead_api.infra.errors import IdentityProviderUnavailable, NotAuthenticated
from fairlead_api.oidc_settings import OidcSettings
from fairlead_client.http_clients import BoundedClient, UnboundedAnswer
from fairlead_client.resources.access import AccessRole, OidcLoginRequest, OidcProvider
from fairlead_client.tls import client_context
from fairlead_process.json_documents import DEEPEST, decode_json, nests_deeper

SIGNED_BY_KEY_PAIR = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")
"""Signature algorithms that are accepted if the provider offers them. Algorithms with a shared secret are not accepted,
because with a shared secret Fairlead itself could have signed a token.
"""

_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()

LEEWAY_SECONDS = 60
"""Maximum accepted difference in seconds between the clocks of the provider and of this process."""


class NoSuchKey(Exception):
    """The token is signed with an unknown key. The provider may have new keys."""


class BadToken(Exception):
    """The token is invalid; `str(error)` says why in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Values that the ID token must contain."""

    issuer: str
    client_id: str
    nonce: str


def checked(token: str, keys: Mapping[str, Any], algorithms: Sequence[str], expected: Expected, now: datetime) -> dict[str, Any]:
    """Return the claims of an ID token. `keys` is the provider's JWK set. Raises NoSuchKey, BadToken."""
    if len(token) > LONGEST_TOKEN:
        raise BadToken(f"the ID token is invalid: it has more than {LONGEST_TOKEN} characters")
    if any(nests_deeper(part, DEEPEST) for part in _parts(token)):
        raise BadToken(f"the ID token is invalid: it nests deeper than {DEEPEST} levels")
    try:
        found = jwt.decode(token, _usable(keys["keys"]), [one for one in algorithms if one in SIGNED_BY_KEY_PAIR])
        jwt.JWTClaimsRegistry(
            now=int(now.timestamp()),
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": expected.issuer},
            aud={"essential": True, "value": expected.client_id},
            nonce={"essential": True, "value": expected.nonce},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
        ).validate(found.claims)
    except InvalidKeyIdError as error:
        raise NoSuchKey(str(error)) from error
    except (JoseError, KeyError, TypeError, ValueError) as error:
        why = _shown(error) if isinstance(error, JoseError) else "it is not a valid JWT"
        raise BadToken(f"the ID token is invalid: {why}") from error
    audience, party = found.claims["aud"], found.claims.get("azp")
    if (isinstance(audience, list) and len(audience) > 1 and party is None) or party not in (None, expected.client_id):
        raise BadToken("the ID token is invalid: it was made for another client (azp)")
    return found.claims


def _parts(token: str) -> list[bytes]:
    """Decode the header and the claims of a JWT from base64. Return an empty list if a part is not base64; the JWT
    library reports that error.
    """
    with suppress(ValueError):
        return [urlsafe_b64decode(part.encode() + b"==") for part in token.split(".")[:2]]
    return []


def _usable(keys: Iterable[Any]) -> KeySet:
    """Return the provider's keys that the JWT library can use. All other keys are skipped (RFC 7517, section 5). Raises
    NoSuchKey if no key is usable.
    """
    found = []
    for key in islice(keys, MOST_KEYS):
        # whatever is wrong with one key, in the words of any library, is no reason to refuse the others
        with suppress(Exception):
            found.append(JWKRegistry.import_key(key))
    if not found:
        raise NoSuchKey("none of the provider's keys can be used")
    return KeySet(found)


_log = logging.getLogger(__name__)

METADATA_SECONDS = 600.0
TIMEOUT_SECONDS = 10.0
"""Seconds within which a response of the provider must be complete."""
LARGEST_ANSWER = 1024 * 1024
"""Maximum number of bytes of one response of the provider: its metadata, keys, tokens, or user information."""
AGAIN_SECONDS = 10
"""Seconds that a caller should wait before it calls the identity provider again."""

PLAIN_JSON = {"accept": "application/json"}

MOST_GROUPS = 1000
MOST_KEYS = 100
"""Maximum number of the provider's keys that are read; each key costs time at every sign-in."""
LONGEST_TOKEN = 256 * 1024
"""Maximum number of characters of an ID token."""
LONGEST_NAME = 200
LONGEST_ADDRESS = 2000
REFUSED = "identity-provider-refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metadata:
    document: Mapping[str, Any]
    keys: Mapping[str, Any]
    read_at: float


class OpenIdProvider:
    """Implements `access.logins.IdentityProvider`. `monotonic` is a clock in seconds."""

    def __init__(
        self, settings: OidcSettings, transport: httpx.AsyncBaseTransport | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        assert settings.issuer, "checked with the settings"
        assert settings.client_id, "the same"
        self._settings = settings
        self.issuer, self._client_id = settings.issuer, settings.client_id
        self._transport = transport
        self._tls = client_context()
        self._monotonic = monotonic
        self._reading = asyncio.Lock()
        self._metadata: _Metadata | None = None

    async def described(self) -> OidcProvider:
        document = (await self._known()).document
        return OidcProvider(
            issuer=self.issuer,
            authorization_endpoint=_text(document, "authorization_endpoint"),
            client_id=self._client_id,
            scopes=self._settings.scopes,
            tells_issuer=document.get("authorization_response_iss_parameter_supported") is True,
        )

    async def person(self, answer: OidcLoginRequest, now: datetime) -> Person:
        metadata = await self._known()
        tokens = await self._exchanged(metadata.document, answer)
        claims: Mapping[str, Any]
        try:
            claims = await self._claims(metadata, tokens, answer.nonce, now)
        except BadToken as error:
            _log.warning("sign-in refused", extra={"error": str(error)})
            raise NotAuthenticated(REFUSED, str(error)) from error
        name, groups = self._settings.name_claim, self._settings.groups_claim
        if name not in claims:
            claims = await self._completed(metadata.document, tokens, claims)
        elif groups not in claims and self._settings.to_groups:
            with suppress(IdentityProviderUnavailable):  # logged; only groups are missing
                claims = await self._completed(metadata.document, tokens, claims)
        return self._with_role(claims)

    def _with_role(self, claims: Mapping[str, Any]) -> Person:
        """Return the person with these claims. Raises an error for a person without a role if the claims lack groups
        that the settings need, because the groups might give a role.
        """
        person, missing = self._named(claims), self._without_groups(claims)
        if missing is None:
            return person
        _log.warning("groups are missing at a sign-in", extra={"person": person.name, "error": missing})
        role, single = self._settings.given.of(person.name, person.groups)
        if role is AccessRole.NONE and not single:
            raise NotAuthenticated(REFUSED, f"{missing}; no role is given to {person.name} by name")
        return person

    def _without_groups(self, claims: Mapping[str, Any]) -> str | None:
        """Return the reason why the person's groups are missing or incomplete; None if the groups are complete or not
        needed.
        """
        claim = self._settings.groups_claim
        if not self._settings.to_groups:
            return None
        elsewhere = claims.get("_claim_names")
        if (isinstance(elsewhere, dict) and claim in elsewhere) or claims.get("hasgroups") is True:
            return (
                f"the identity provider left {claim!r} out, as the person has more groups than fit into a token (Entra ID: above 200); let it "
                "send only the groups that are assigned to the application, or its roles (FAIRLEAD_OIDC_GROUPS_CLAIM=roles)"
            )
        listed = claims.get(claim)
        if (
            listed is not None
            and not isinstance(listed, str)
            and not (isinstance(listed, list) and all(isinstance(one, str) for one in listed))
        ):
            return f"the identity provider sends {claim!r} as {type(listed).__name__} with values that are not names; let it send a list of names"
        return None

    def _named(self, claims: Mapping[str, Any]) -> Person:
        wanted = self._settings.name_claim
        name, listed = claims.get(wanted), claims.get(self._settings.groups_claim) or []
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
            raise NotAuthenticated(
                REFUSED, f"the identity provider sends no {wanted!r}; check FAIRLEAD_OIDC_NAME_CLAIM and FAIRLEAD_OIDC_SCOPES"
            )
        if (odd := why_odd(name)) is not None:  # never put right: the corrected name is another person's, with that one's rights
            raise NotAuthenticated(REFUSED, f"the identity provider's {wanted!r} is {name!r}, and a name {odd}")
        if wanted == "email" and claims.get("email_verified") is not True:
            raise NotAuthenticated(
                REFUSED, f"the identity provider does not say that {name} is verified; choose another claim with FAIRLEAD_OIDC_NAME_CLAIM"
            )
        groups = [listed] if isinstance(listed, str) else listed if isinstance(listed, list) else []
        return Person(name=name, groups=tuple(one for one in groups if isinstance(one, str) and why_odd(one) is None)[:MOST_GROUPS])

    async def _claims(self, metadata: _Metadata, tokens: Mapping[str, Any], nonce: str, now: datetime) -> dict[str, Any]:
        """Return the claims of the ID token. Raises BadToken, IdentityProviderUnavailable."""
        token = tokens.get("id_token")
        if not isinstance(token, str):
            raise BadToken("the identity provider gave no ID token; is `openid` among FAIRLEAD_OIDC_SCOPES?")
        expected = Expected(issuer=self.issuer, client_id=self._client_id, nonce=nonce)
        named = _words(metadata.document, "id_token_signing_alg_values_supported", "RS256")
        try:
            return checked(token, metadata.keys, named, expected, now)
        except NoSuchKey:
            try:
                return checked(token, (await self._known(after=metadata.read_at)).keys, named, expected, now)
            except NoSuchKey as error:
                raise BadToken(f"the ID token is invalid: {error}") from error

    async def _exchanged(self, document: Mapping[str, Any], answer: OidcLoginRequest) -> Mapping[str, Any]:
        """Exchange the code of a sign-in for tokens (RFC 6749, section 4.1.3), and return them. Raises
        NotAuthenticated, IdentityProviderUnavailable.
        """
        form = {
            "grant_type": "authorization_code",
            "code": answer.code,
            "redirect_uri": answer.redirect_uri,
            "code_verifier": answer.code_verifier,
        }
        headers, secret = {}, self._settings.client_secret
        ways = _words(document, "token_endpoint_auth_methods_supported", "client_secret_basic")
        if secret is None:
            form["client_id"] = self._client_id
        elif "client_secret_basic" in ways or "client_secret_post" not in ways:
            credentials = httpx.BasicAuth(quote_plus(self._client_id), quote_plus(secret))
            headers["authorization"] = next(credentials.auth_flow(httpx.Request("POST", self.issuer))).headers["authorization"]
        else:
            form |= {"client_id": self._client_id, "client_secret": secret}
        status, found = await self._ask("POST", _text(document, "token_endpoint"), headers, form)
        if status == 200:
            return found
        error, description = found.get("error"), found.get("error_description")
        told = f"{_shown(error)}: {_shown(description)}" if description else _shown(error)
        if status >= 500 or error in ("invalid_client", "unauthorized_client"):
            raise self._away(f"the identity provider does not give tokens to client {self._client_id!r}: {status} {told}")
        raise NotAuthenticated(REFUSED, f"the identity provider refused the code: {told}; sign in again")

    async def _completed(self, document: Mapping[str, Any], tokens: Mapping[str, Any], claims: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the claims, with missing claims added from the userinfo endpoint. Raises NotAuthenticated."""
        place, token = document.get("userinfo_endpoint"), tokens.get("access_token")
        if not _is_address(place) or not isinstance(token, str):
            return claims
        status, found = await self._ask("GET", str(place), {"authorization": f"Bearer {token}"})
        if status != 200:
            raise self._away(f"the identity provider does not say who signed in: {status}")
        if found.get("sub") != claims["sub"]:  # Core 5.3.2: else they could be another person's claims
            raise NotAuthenticated(REFUSED, "the identity provider's user information is about another person than the one who signed in")
        return {**found, **claims}

    async def _known(self, after: float | None = None) -> _Metadata:
        """Return the provider's metadata, from the cache or from the provider.

        With `after`, cached metadata are used only if they were read later than `after`. Without `after`, cached
        metadata are used for METADATA_SECONDS, and longer while the provider is unreachable. Raises
        IdentityProviderUnavailable.
        """
        async with self._reading:
            known, now = self._metadata, self._monotonic()
            if known is not None and (known.read_at > after if after is not None else now - known.read_at < METADATA_SECONDS):
                return known
            try:
                self._metadata = await self._read(now)
            except IdentityProviderUnavailable:
                if known is None or after is not None:
                    raise
                return known
            return self._metadata

    async def _read(self, now: float) -> _Metadata:
        status, document = await self._ask("GET", self.issuer.rstrip("/") + "/.well-known/openid-configuration")
        if status != 200 or document.get("issuer") != self.issuer:
            named = f"names itself {_shown(document['issuer'])!r}" if document.get("issuer") else f"answers {status}"
            raise self._away(f"the identity provider {self.issuer} {named}; is FAIRLEAD_OIDC_ISSUER right?")
        status, keys = await self._ask("GET", _text(document, "jwks_uri"))
        if status != 200 or not isinstance(keys.get("keys"), list):
            raise self._away(f"the identity provider does not show its keys: {status}")
        return _Metadata(document=document, keys=keys, read_at=now)

    async def _ask(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, form: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, Any]]:
        """Send a request to the provider and return the status and the JSON object of its response. Raises
        IdentityProviderUnavailable.
        """
        try:
            status, content = await self._read_whole(method, url, {**PLAIN_JSON, **(headers or {})}, form)
            found = decode_json(content, _ANY) if content else {}
        except UnboundedAnswer as error:
            raise self._away(f"the identity provider {error}, at {url}") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._away(f"the identity provider does not answer: {type(error).__name__} {_shown(error)}") from error
        except TimeoutError as error:
            raise self._away(f"the identity provider does not answer in full within {TIMEOUT_SECONDS:g} s at {url}") from error
        except msgspec.DecodeError as error:
            raise self._away(f"the identity provider does not answer with JSON at {url}: {status}") from error
        if not isinstance(found, dict):
            raise self._away(f"the identity provider does not answer with a JSON object at {url}: {status}")
        return status, found

    async def _read_whole(self, method: str, url: str, headers: Mapping[str, str], form: Mapping[str, str] | None) -> tuple[int, bytes]:
        """Send a request and return the status and the complete body of the response. Raises TimeoutError,
        UnboundedAnswer.
        """
        async with (
            asyncio.timeout(TIMEOUT_SECONDS),
            BoundedClient(LARGEST_ANSWER, trust_env=True, timeout=TIMEOUT_SECONDS, transport=self._transport, verify=self._tls) as http,
        ):
            answer = await http.request(method, url, headers=headers, data=form)
        return answer.status_code, answer.content

    def _away(self, detail: str) -> IdentityProviderUnavailable:
        _log.warning("identity provider not usable", extra={"error": detail})
        return IdentityProviderUnavailable(detail, AGAIN_SECONDS)


def _words(document: Mapping[str, Any], name: str, usual: str) -> list[str]:
    """Return the list of strings `name` from the provider's metadata, or `usual` alone if the metadata have no such
    list.
    """
    found = document.get(name)
    return [one for one in found if isinstance(one, str)] if found and isinstance(found, list) else [usual]


def _shown(value: object) -> str:
    """Return a value from the provider as text for a message: at most 300 characters on one line."""
    text = value if isinstance(value, str) else str(value) if isinstance(value, int | float | Exception | None) else type(value).__name__
    return "".join(sign if sign.isprintable() else "?" for sign in text[:300])


def _text(document: Mapping[str, Any], name: str) -> str:
    """Return the URL `name` from the provider's metadata. Raises IdentityProviderUnavailable."""
    found = document.get(name)
    if not _is_address(found):
        raise IdentityProviderUnavailable(f"the identity provider names no {name} that can be used", AGAIN_SECONDS)
    return str(found)


def _is_address(found: object) -> bool:
    if not isinstance(found, str) or len(found) > LONGEST_ADDRESS or not found.isprintable():
        return False
    with suppress(httpx.InvalidURL, ValueError):
        url = httpx.URL(found)
        return url.scheme in ("http", "https") and bool(url.host)
    return False

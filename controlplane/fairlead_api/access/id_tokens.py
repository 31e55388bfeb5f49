"""Checks ID tokens (OpenID Connect Core 1.0, section 3.1.3.7). Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

SIGNED_BY_KEY_PAIR = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")
"""Algorithms that are accepted, if the provider names them. A shared secret proves nothing about who signed."""

LEEWAY_SECONDS = 60
"""By so much the clocks of the provider and of this process may differ."""


class NoSuchKey(Exception):
    """The token is signed with a key that is not among those given: the provider may have new ones."""


class BadToken(Exception):
    """The token proves nothing; `str(error)` says why in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the token must say."""

    issuer: str
    client_id: str
    nonce: str


def checked(token: str, keys: Mapping[str, Any], algorithms: Sequence[str], expected: Expected, now: datetime) -> dict[str, Any]:
    """The claims of an ID token. `keys` is the provider's JWK set. Raises NoSuchKey, BadToken."""
    try:
        found = jwt.decode(
            token, KeySet.import_key_set({"keys": list(keys["keys"])}), [one for one in algorithms if one in SIGNED_BY_KEY_PAIR]
        )
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
        why = str(error) if isinstance(error, JoseError) else "it is not written as one"
        raise BadToken(f"the ID token is not good: {why}") from error
    audience, party = found.claims["aud"], found.claims.get("azp")
    if (isinstance(audience, list) and len(audience) > 1 and party is None) or party not in {None, expected.client_id}:
        raise BadToken("the ID token is not good: it was made for another client (azp)")
    return found.claims

"""Whatever an identity provider answers, a sign-in ends with a person or with one short line, and within bounds."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import JWKRegistry, KeySet, RSAKey

from fairlead_api.access import identity_provider
from fairlead_api.access.identity_provider import LONGEST_TOKEN, MOST_KEYS, Expected, OpenIdProvider, checked
from fairlead_api.access.logins import Person
from fairlead_api.infra.errors import IdentityProviderUnavailable, NotAuthenticated
from fairlead_api.oidc_settings import OidcSettings, parse_given
from fairlead_client.resources.access import OidcLoginRequest
from fairlead_testing.examples import examples
from fairlead_testing.steps import work_of

ISSUER = "https://id.example.com"
NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
SECONDS = int(NOW.timestamp())
ANSWER = OidcLoginRequest(code="c0de", code_verifier="v" * 43, nonce="n0nce", redirect_uri="https://fairlead.example.com/login/oidc/answer")
SETTINGS = OidcSettings(
    issuer=ISSUER, client_id="lead", client_secret="secret", to_groups=parse_given("FAIRLEAD_OIDC_GROUPS", "admin:platform")
)
KEY = RSAKey.generate_key(2048, {"kid": "1"})
KEYS = KeySet([KEY]).as_dict(private=False)
CLAIMS: dict[str, Any] = {"iss": ISSUER, "aud": "lead", "sub": "17", "nonce": "n0nce", "iat": SECONDS, "exp": SECONDS + 300}
WHO = {"sub": "17", "email": "ann@example.com", "email_verified": True, "groups": ["platform"]}
LONGEST_LINE = 1000


def token(claims: Any) -> str:
    return jwt.encode({"alg": "RS256", "kid": "1"}, claims, KEY)


PLACES = {name: f"{ISSUER}/{name}" for name in ("authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint")}
CONFIGURATION = "/.well-known/openid-configuration"
USUAL: dict[str, Any] = {
    CONFIGURATION: {"issuer": ISSUER, **PLACES},
    "/jwks_uri": KEYS,
    "/token_endpoint": {"id_token": token(CLAIMS), "access_token": "at"},
    "/userinfo_endpoint": WHO,
}


PROVIDER = OpenIdProvider(SETTINGS)


async def sign_in(answers: dict[str, bytes], status: int = 200) -> Person | str:
    """Return the signed-in person, or the refusal. All other endpoints of the provider answer as usual."""

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path in answers:
            return httpx.Response(status, content=answers[path])
        return httpx.Response(200, json=USUAL[path]) if path in USUAL else httpx.Response(404)

    PROVIDER._transport, PROVIDER._metadata = httpx.MockTransport(answer), None
    try:
        return await PROVIDER.person(ANSWER, NOW)
    except (IdentityProviderUnavailable, NotAuthenticated) as error:
        return str(error)


def assert_ended(outcome: Person | str) -> None:
    if isinstance(outcome, str):
        assert len(outcome) < LONGEST_LINE
        assert outcome.isprintable()


NESTED = b"[" * 1000 + b"]" * 1000
LONG = "x" * 500_000
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.sampled_from([LONG, ISSUER, "RS256"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


def changed(place: str) -> st.SearchStrategy[bytes]:
    """Return a strategy for answers: the usual one with other values in some fields, or a completely different one."""
    usual = USUAL[place]
    names = [*usual, "token_endpoint_auth_methods_supported", "id_token_signing_alg_values_supported", "error", "error_description"]
    fields = st.dictionaries(st.sampled_from(names), JSON, min_size=1, max_size=3)
    return (
        st.binary(max_size=30)
        | JSON.map(lambda made: json.dumps(made).encode())
        | fields.map(lambda made: json.dumps({**usual, **made}).encode())
    )


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize("place", USUAL)
@given(data=st.data())
@examples(40)
async def test_any_document_ends_a_sign_in_in_one_short_line_or_with_a_person(place: str, status: int, data: st.DataObject) -> None:
    assert_ended(await sign_in({place: data.draw(changed(place))}, status))


@given(st.dictionaries(st.sampled_from([*CLAIMS, *WHO, "azp", "_claim_names", "hasgroups"]), JSON, max_size=4))
@examples(60)
async def test_any_claims_do_the_same(claims: dict[str, Any]) -> None:
    answer = {"id_token": token({**CLAIMS, **WHO, **claims}), "access_token": "at"}
    assert_ended(await sign_in({"/token_endpoint": json.dumps(answer).encode()}))


def spelled(header: bytes, payload: bytes) -> bytes:
    """Return a token with these two parts and an invalid signature."""
    parts = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (header, payload, b"x" * 256))
    return json.dumps({"id_token": parts.decode(), "access_token": "at"}).encode()


HEAD = b'{"alg":"RS256","kid":"1"}'
ODD: dict[str, dict[str, bytes]] = {
    **{f"{place} nests deeply": {place: b'{"issuer":%s}' % NESTED} for place in USUAL},
    **{f"{place} nests too deeply for JSON": {place: b"[" * 200_000} for place in USUAL},
    "an error that nests deeply": {"/token_endpoint": b'{"error":%s,"error_description":%s}' % (NESTED, NESTED)},
    "an issuer that nests deeply": {"/.well-known/openid-configuration": b'{"issuer":%s}' % NESTED},
    "a token's head that nests deeply": {"/token_endpoint": spelled(b'{"alg":"RS256","x":' + b"[" * 100_000, b"{}")},
    "a token's claims that nest deeply": {"/token_endpoint": spelled(HEAD, b"[" * 100_000)},
    "a token of half a megabyte": {"/token_endpoint": spelled(HEAD, b" " * 400_000)},
    "a token of dots": {"/token_endpoint": json.dumps({"id_token": "." * 200_000}).encode()},
    "a modulus of a million bits": {"/jwks_uri": json.dumps({"keys": [{"kty": "RSA", "kid": "1", "e": "AQAB", "n": "_" * 170_000}]}).encode()},
    "an exponent of a million bits": {
        "/jwks_uri": json.dumps({"keys": [{**KEYS["keys"][0], "e": "_" * 170_000}]}).encode()
    },
    "an address of half a megabyte": {CONFIGURATION: json.dumps({**USUAL[CONFIGURATION], "token_endpoint": f"{ISSUER}/{LONG}"}).encode()},
    "an address of two lines": {CONFIGURATION: json.dumps({**USUAL[CONFIGURATION], "jwks_uri": f"{ISSUER}/a\nb"}).encode()},
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("status", [200, 400])
async def test_odd_sizes_and_depths_do_the_same(name: str, status: int) -> None:
    outcome = await sign_in(ODD[name], status)
    assert isinstance(outcome, str)
    assert_ended(outcome)


def test_of_a_million_keys_no_more_than_some_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []

    def look(key: object) -> RSAKey:
        looked.append(key)
        return KEY

    monkeypatch.setattr(JWKRegistry, "import_key", look)
    expected = Expected(issuer=ISSUER, client_id="lead", nonce="n0nce")
    assert checked(token(CLAIMS), {"keys": [{"kid": str(n)} for n in range(10_000)]}, ["RS256"], expected, NOW)["sub"] == "17"
    assert len(looked) == MOST_KEYS


@pytest.mark.parametrize("piece", [b" ", b"[],", b'"a":1,', b"\xff"])
def test_the_work_on_a_token_is_linear(piece: bytes) -> None:
    expected = Expected(issuer=ISSUER, client_id="lead", nonce="n0nce")

    def work(size: int) -> int:
        made = json.loads(spelled(HEAD, b"{" + piece * (size // len(piece)) + b"}"))["id_token"]

        def parse() -> None:
            with pytest.raises(identity_provider.BadToken):
                checked(made, KEYS, ["RS256"], expected, NOW)

        parse()
        return work_of(parse)

    assert work(60_000) <= 2.5 * work(30_000)
    assert work(2 * LONGEST_TOKEN) <= 2.5 * work(30_000), "it is not even looked at"


async def test_the_usual_answers_are_a_person() -> None:
    assert await sign_in({}) == Person(name="ann@example.com", groups=("platform",))

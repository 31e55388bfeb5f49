"""Which answers of an identity provider are believed. tests/e2e/web/test_identity_provider.py uses a real one."""

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey

from fairlead_api.access import identity_provider
from fairlead_api.access.identity_provider import METADATA_SECONDS, OpenIdProvider
from fairlead_api.access.logins import Person
from fairlead_api.infra.errors import IdentityProviderUnavailable, NotAuthenticated
from fairlead_api.oidc_settings import OidcSettings, parse_given
from fairlead_client.resources.access import OidcLoginRequest

ISSUER = "https://id.example.com"
NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
SECONDS = int(NOW.timestamp())
ANSWER = OidcLoginRequest(code="c0de", code_verifier="v" * 43, nonce="n0nce", redirect_uri="https://fairlead.example.com/login/oidc/answer")
SETTINGS = OidcSettings(
    issuer=ISSUER, client_id="fair/lead", client_secret="s:cret &", to_groups=parse_given("FAIRLEAD_OIDC_GROUPS", "admin:platform")
)
FIRST, SECOND = RSAKey.generate_key(2048, {"kid": "1"}), RSAKey.generate_key(2048, {"kid": "2"})
CLAIMS: dict[str, Any] = {
    "iss": ISSUER,
    "aud": "fair/lead",
    "sub": "17",
    "nonce": "n0nce",
    "iat": SECONDS,
    "exp": SECONDS + 300,
    "email": "ann@example.com",
    "email_verified": True,
    "groups": ["platform"],
}


@dataclass(kw_only=True)
class Provider:
    """A provider with the answers that a test sets; `asked` has the requests that it got."""

    claims: dict[str, Any] = field(default_factory=lambda: dict(CLAIMS))
    signed: Callable[[dict[str, Any]], str] = lambda claims: jwt.encode({"alg": "RS256", "kid": "1"}, claims, FIRST)
    keys: list[Any] = field(default_factory=lambda: [FIRST])
    odd_keys: list[Any] = field(default_factory=list)
    document: dict[str, Any] = field(default_factory=dict)
    userinfo: dict[str, Any] = field(default_factory=dict)
    tokens: httpx.Response | None = None
    no_userinfo: httpx.Response | None = None
    is_away: bool = False
    asked: list[httpx.Request] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        if self.is_away:
            raise httpx.ConnectError("refused")
        match request.url.path:
            case "/.well-known/openid-configuration":
                places = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "jwks", "userinfo_endpoint": "me"}
                return httpx.Response(
                    200, json={"issuer": ISSUER, **{name: f"{ISSUER}/{path}" for name, path in places.items()}, **self.document}
                )
            case "/jwks":
                return httpx.Response(200, json={"keys": [*self.odd_keys, *KeySet(self.keys).as_dict(private=False)["keys"]]})
            case "/token":
                return self.tokens or httpx.Response(200, json={"id_token": self.signed(self.claims), "access_token": "at"})
            case "/me":
                assert request.headers["authorization"] == "Bearer at"
                return self.no_userinfo or httpx.Response(200, json=self.userinfo)
        return httpx.Response(404)

    def count(self, path: str) -> int:
        return sum(one.url.path == path for one in self.asked)


def asking(provider: Provider, settings: OidcSettings = SETTINGS, monotonic: Callable[[], float] = lambda: 0.0) -> OpenIdProvider:
    return OpenIdProvider(settings, httpx.MockTransport(provider), monotonic)


async def test_a_code_becomes_the_person_whom_a_good_token_names() -> None:
    provider = Provider()
    assert await asking(provider).person(ANSWER, NOW) == Person(name="ann@example.com", groups=("platform",))
    request = next(one for one in provider.asked if one.url.path == "/token")
    assert parse_qs(request.content.decode()) == {
        "grant_type": ["authorization_code"],
        "code": ["c0de"],
        "redirect_uri": [ANSWER.redirect_uri],
        "code_verifier": ["v" * 43],
    }
    assert base64.b64decode(request.headers["authorization"].removeprefix("Basic ")) == b"fair%2Flead:s%3Acret+%26", "RFC 6749, 2.3.1"
    assert provider.count("/me") == 0, "the token tells all"


BAD: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://evil.example.com"},
    "another client": {"aud": "other"},
    "another client among several": {"aud": ["fair/lead", "other"]},
    "another client's by azp": {"azp": "other"},
    "another attempt": {"nonce": "other"},
    "no nonce": {"nonce": None},
    "expired": {"exp": SECONDS - 61},
    "of the future": {"iat": SECONDS + 3600},
    "nobody": {"sub": None},
    "no end": {"exp": None},
}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD)
async def test_a_token_that_does_not_fit_signs_nobody_in(change: dict[str, Any]) -> None:
    provider = Provider(claims={name: value for name, value in {**CLAIMS, **change}.items() if value is not None})
    with pytest.raises(NotAuthenticated, match="the ID token is invalid"):
        await asking(provider).person(ANSWER, NOW)


SIGNED: dict[str, Callable[[dict[str, Any]], str]] = {
    "by another's key": lambda claims: jwt.encode({"alg": "RS256", "kid": "1"}, claims, SECOND),
    "with the client's secret": lambda claims: jwt.encode(
        {"alg": "HS256"}, claims, OctKey.import_key("s:cret &" * 4), algorithms=["HS256"]
    ),
    "with an algorithm that the provider does not name": lambda claims: jwt.encode(
        {"alg": "ES256", "kid": "1"}, claims, ECKey.generate_key("P-256", {"kid": "1"})
    ),
    "by nobody": lambda claims: (
        ".".join(base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in ({"alg": "none"}, claims)) + "."
    ),
    "not at all": lambda claims: "no token",
}


@pytest.mark.parametrize("signed", SIGNED.values(), ids=SIGNED)
async def test_a_token_is_believed_only_if_the_provider_signed_it_with_its_key_pair(signed: Callable[[dict[str, Any]], str]) -> None:
    for document in ({}, {"id_token_signing_alg_values_supported": ["RS256", "HS256", "none"]}):
        with pytest.raises(NotAuthenticated):
            await asking(Provider(signed=signed, document=document)).person(ANSWER, NOW)


async def test_keys_that_the_provider_changed_are_read_again_and_its_description_is_not_read_for_each_login() -> None:
    clock = [0.0]
    provider = Provider()
    ours = asking(provider, monotonic=lambda: clock[0])
    for _ in range(3):
        await ours.person(ANSWER, NOW)
    assert (provider.count("/jwks"), provider.count("/token")) == (1, 3)
    provider.keys = [SECOND, FIRST]
    provider.signed = lambda claims: jwt.encode({"alg": "RS256", "kid": "2"}, claims, SECOND)
    clock[0] = 5.0
    assert (await ours.person(ANSWER, NOW)).name == "ann@example.com"
    assert provider.count("/jwks") == 2
    clock[0] = 5.0 + METADATA_SECONDS
    await ours.described()
    assert provider.count("/jwks") == 3


async def test_what_the_token_leaves_out_is_asked_of_userinfo_about_the_same_person() -> None:
    short = {name: value for name, value in CLAIMS.items() if name not in {"email", "email_verified", "groups"}}
    told = {"sub": "17", "email": "ann@example.com", "email_verified": True, "groups": "platform", "iss": "https://evil.example.com"}
    assert await asking(Provider(claims=short, userinfo=told)).person(ANSWER, NOW) == Person(name="ann@example.com", groups=("platform",))
    with pytest.raises(NotAuthenticated, match="another person"):
        await asking(Provider(claims=short, userinfo={**told, "sub": "18"})).person(ANSWER, NOW)
    with pytest.raises(NotAuthenticated, match="sends no 'email'"):
        await asking(Provider(claims=short, userinfo={"sub": "17"})).person(ANSWER, NOW)


@pytest.mark.parametrize("verified", [None, False, "true"])
async def test_an_address_that_is_not_verified_names_nobody_but_other_claims_do(verified: object) -> None:
    provider = Provider(claims={**CLAIMS, "email_verified": verified})
    with pytest.raises(NotAuthenticated, match="FAIRLEAD_OIDC_NAME_CLAIM"):
        await asking(provider).person(ANSWER, NOW)
    assert (await asking(provider, replace(SETTINGS, name_claim="sub")).person(ANSWER, NOW)).name == "17"


async def test_a_provider_that_takes_the_secret_in_the_form_gets_it_there_and_a_public_client_sends_none() -> None:
    provider = Provider(document={"token_endpoint_auth_methods_supported": ["client_secret_post"]})
    await asking(provider).person(ANSWER, NOW)
    form = parse_qs(provider.asked[-1].content.decode())
    assert (form["client_id"], form["client_secret"]) == (["fair/lead"], ["s:cret &"])
    await asking(provider, replace(SETTINGS, client_secret=None)).person(ANSWER, NOW)
    form = parse_qs(provider.asked[-1].content.decode())
    assert (form["client_id"], "client_secret" in form) == (["fair/lead"], False)


async def test_a_refused_code_is_the_persons_matter_and_a_refused_client_is_ours() -> None:
    used = httpx.Response(400, json={"error": "invalid_grant", "error_description": "used before"})
    with pytest.raises(NotAuthenticated, match="refused the code: invalid_grant: used before; sign in again"):
        await asking(Provider(tokens=used)).person(ANSWER, NOW)
    with pytest.raises(IdentityProviderUnavailable, match="does not give tokens to client 'fair/lead': 401 invalid_client"):
        await asking(Provider(tokens=httpx.Response(401, json={"error": "invalid_client"}))).person(ANSWER, NOW)


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        (Provider(is_away=True), "does not answer"),
        (
            Provider(document={"issuer": "https://id.example.com/"}),
            "names itself 'https://id.example.com/'; is FAIRLEAD_OIDC_ISSUER right?",
        ),
        (Provider(document={"token_endpoint": None}), "names no token_endpoint"),
        (Provider(tokens=httpx.Response(200, text="<html>")), "does not answer with JSON"),
        (Provider(tokens=httpx.Response(200, json=[])), "JSON object"),
        (Provider(tokens=httpx.Response(502, json={})), "does not give tokens"),
    ],
)
async def test_a_provider_that_cannot_be_used_is_said_to_be_away_and_why(provider: Provider, said: str) -> None:
    with pytest.raises(IdentityProviderUnavailable) as caught:
        await asking(provider).person(ANSWER, NOW)
    assert said in str(caught.value)


async def test_while_the_provider_is_away_its_last_description_serves() -> None:
    clock = [0.0]
    provider = Provider(document={"authorization_response_iss_parameter_supported": True})
    ours = asking(provider, monotonic=lambda: clock[0])
    first = await ours.described()
    assert (first.authorization_endpoint, first.client_id, first.tells_issuer) == (f"{ISSUER}/authorize", "fair/lead", True)
    provider.is_away, clock[0] = True, METADATA_SECONDS + 1
    assert await ours.described() == first


@pytest.mark.parametrize(
    "name",
    [
        "ann@example.com ",
        " ann@example.com",
        "\tann@example.com",
        "ann@example.com\u00a0",
        "ann@example.com\n",
        "ann\x00@example.com",
        "ann\u200b@example.com",
        "ann\u202e@example.com",
        "ann@example\u2024com",
        "\uff41nn@example.com",
        "\u0430nn@example.com",
        "ann@ex\u03b1mple.com",
        "",
    ],
)
async def test_a_name_that_could_be_taken_for_anothers_signs_nobody_in(name: str) -> None:
    provider = Provider(claims={**CLAIMS, "email": name})
    with pytest.raises(NotAuthenticated):
        await asking(provider).person(ANSWER, NOW)


@pytest.mark.parametrize("name", ["Ann Müller", "Łukasz", "Иван", "王小明", "さくら 太郎", "o'neill", "Αλέξης", "ann+test@example.com"])
async def test_names_of_all_scripts_are_taken_as_they_are_and_odd_groups_are_left_out(name: str) -> None:
    groups = ["platform", "platform ", "pl\u0430tform", "plat\u200bform"]
    provider = Provider(claims={**CLAIMS, "preferred_username": name, "groups": groups})
    found = await asking(provider, replace(SETTINGS, name_claim="preferred_username")).person(ANSWER, NOW)
    assert found == Person(name=name, groups=("platform",))


class Endless(httpx.AsyncByteStream):
    """A body without an end; `pieces` is the number of read pieces."""

    def __init__(self, *, silent: bool) -> None:
        self.silent = silent
        self.pieces = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.pieces += 1
            yield b" " if self.silent else b" " * 65536
            await asyncio.sleep(0.001 if self.silent else 0)


@pytest.mark.parametrize("place", ["/.well-known/openid-configuration", "/jwks", "/token", "/me"])
@pytest.mark.parametrize("silent", [True, False], ids=["a byte at a time", "at once"])
async def test_an_answer_without_end_is_cut_and_not_kept(place: str, silent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_provider, "TIMEOUT_SECONDS", 0.3 if silent else 100.0)
    stream = Endless(silent=silent)
    provider = Provider(claims={name: value for name, value in CLAIMS.items() if name not in {"email", "groups"}})

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=stream) if request.url.path == place else provider(request)

    asked = OpenIdProvider(SETTINGS, httpx.MockTransport(answer), lambda: 0.0)
    with pytest.raises(IdentityProviderUnavailable, match=r"in full within|more than \d+ bytes"):
        await asked.person(ANSWER, NOW)
    if not silent:
        assert stream.pieces * 65536 <= identity_provider.LARGEST_ANSWER + 65536


async def test_a_compressed_answer_is_not_unpacked() -> None:
    bomb = httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(gzip.compress(b" " * 10_000_000)))
    with pytest.raises(IdentityProviderUnavailable, match="compresses"):
        await OpenIdProvider(SETTINGS, httpx.MockTransport(lambda _: bomb), lambda: 0.0).described()


ODD_KEYS: list[Any] = [
    {"kty": "EC", "crv": "brainpoolP256r1", "x": "AA", "y": "AA", "kid": "9"}, {"kty": "OKP", "crv": "Foo", "x": "AA"}, {"kid": "8"}, {"kty": "AKP"},
    {"kty": "RSA", "n": "!!", "e": "AQAB"}, {"kty": "RSA", "n": 5, "e": []}, {"kty": {}}, {"kty": "EC"}, {}, None, "key", 7, [],
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD_KEYS, ids=repr)
async def test_a_key_that_cannot_be_used_is_passed_over(odd: Any) -> None:
    assert (await asking(Provider(odd_keys=[odd])).person(ANSWER, NOW)).name == "ann@example.com"


async def test_a_provider_without_a_key_that_can_be_used_signs_nobody_in() -> None:
    with pytest.raises(NotAuthenticated, match="none of the provider's keys can be used"):
        await asking(Provider(keys=[], odd_keys=ODD_KEYS)).person(ANSWER, NOW)


LEFT_OUT: list[dict[str, Any]] = [
    {"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"endpoint": "https://graph.example.com"}}},
    {"hasgroups": True},
    {"groups": {"platform": True}},
    {"groups": [{"id": "platform"}]},
    {"groups": 7},
]


@pytest.mark.parametrize("claims", LEFT_OUT, ids=repr)
async def test_groups_that_do_not_come_are_said_and_who_has_a_role_by_name_signs_in_all_the_same(claims: dict[str, Any]) -> None:
    without = {name: value for name, value in CLAIMS.items() if name != "groups"}
    provider = Provider(claims={**without, **claims}, userinfo={"sub": "17"})
    with pytest.raises(NotAuthenticated, match=r"the identity provider (left 'groups' out|sends 'groups' as)"):
        await asking(provider).person(ANSWER, NOW)
    named = replace(SETTINGS, to_people=parse_given("FAIRLEAD_OIDC_PEOPLE", "viewer:ann@example.com"))
    assert (await asking(provider, named).person(ANSWER, NOW)).name == "ann@example.com"
    assert (await asking(provider, replace(SETTINGS, to_groups=())).person(ANSWER, NOW)).groups == ()


@pytest.mark.parametrize("answer", [httpx.Response(403), httpx.Response(200, text="eyJhbGciOi.J9.x"), httpx.Response(500)])
async def test_userinfo_that_would_only_add_groups_keeps_nobody_out(answer: httpx.Response) -> None:
    without = {name: value for name, value in CLAIMS.items() if name != "groups"}
    assert await asking(Provider(claims=without, no_userinfo=answer)).person(ANSWER, NOW) == Person(name="ann@example.com", groups=())

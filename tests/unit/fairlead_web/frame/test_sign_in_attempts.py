"""One attempt to sign in at an identity provider, from the cookie to the provider's answer."""

import base64
import hashlib
from itertools import count
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_client.resources.access import OidcProvider
from fairlead_web.frame.sign_in_attempts import Attempt, attempt_of, begun

PROVIDER = OidcProvider(
    issuer="https://id.example.com",
    authorization_endpoint="https://id.example.com/authorize?tenant=a",
    client_id="fairlead",
    scopes="openid email",
    tells_issuer=True,
)
GOOD = {"code": "c", "state": "s" * 43, "iss": PROVIDER.issuer}
MINE = Attempt(state="s" * 43, nonce="n" * 43, verifier="v" * 43, target="/pools?sort=name")


def test_the_browser_is_sent_with_the_hash_of_the_verifier_and_never_with_itself() -> None:
    address = urlsplit(MINE.address(PROVIDER, "https://fairlead.example.com/login/oidc/answer"))
    assert f"{address.scheme}://{address.netloc}{address.path}" == "https://id.example.com/authorize"
    asked = {name: value for name, (value,) in parse_qs(address.query).items()}
    challenge = base64.urlsafe_b64encode(hashlib.sha256(b"v" * 43).digest()).decode().rstrip("=")
    assert asked == {
        "tenant": "a",
        "response_type": "code",
        "client_id": "fairlead",
        "redirect_uri": "https://fairlead.example.com/login/oidc/answer",
        "scope": "openid email",
        "state": "s" * 43,
        "nonce": "n" * 43,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }


@given(st.text(max_size=1000))
def test_a_cookie_keeps_the_whole_attempt(target: str) -> None:
    secret = count(1)
    attempt = begun("/" + target, lambda: f"{next(secret):043d}")
    assert attempt_of(attempt.cookie()) == attempt
    assert len(attempt.cookie()) < 4000
    assert len({attempt.state, attempt.nonce, attempt.verifier}) == 3


@given(st.text(max_size=300))
def test_any_other_cookie_is_no_attempt(text: str) -> None:
    assert attempt_of(text) is None


def test_an_address_too_long_for_a_cookie_leads_to_the_overview() -> None:
    assert begun("/" + "x" * 2000, lambda: "s" * 43).target == "/"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"state": "other"}, "another attempt"),
        ({"state": None}, "another attempt"),
        ({"iss": "https://evil.example.com"}, "another identity provider"),
        ({"iss": None}, "another identity provider"),
        ({"error": "access_denied", "error_description": "no"}, "The identity provider reports access_denied: no."),
        ({"code": None}, "sent no code"),
        ({}, None),
    ],
)
def test_what_comes_back_is_refused_unless_it_belongs_to_the_attempt_and_the_provider(
    change: dict[str, str | None], said: str | None
) -> None:
    brought = {name: value for name, value in {**GOOD, **change}.items() if value is not None}
    found = MINE.refusal(brought, PROVIDER)
    assert found is None if said is None else said in (found or "")

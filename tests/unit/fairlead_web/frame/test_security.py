"""Which people and origins may send requests, and the security headers of every answer."""

from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from fairlead.errors import InvalidInput
from fairlead_testing.running.web_client import COOKIE, ORIGIN, visitor
from fairlead_web.app import PAGE_MODULES
from fairlead_web.frame.assets import load_assets
from fairlead_web.frame.security import CONTENT_SECURITY_POLICY, cross_site_refusal, csrf_matches, csrf_token, local_path
from fairlead_web.frame.settings import web_settings

FILL = {"namespace": "default", "name": "chat", "instance": "x", "session:path": "s", "migration:path": "m", "decision:path": "d"}


def concrete(path: str) -> str:
    for name, value in {**FILL, "plan": "p", "entry": "1", "token": "t"}.items():
        path = path.replace(f"{{{name}}}", value)
    return path


@pytest.mark.parametrize("path", [concrete(path) for module in PAGE_MODULES if hasattr(module, "ROUTES") for path in module.ROUTES.pages])
async def test_nothing_is_shown_without_a_session(path: str) -> None:
    async with visitor(None) as guest:
        answer = await guest.http.get(path)
        if path.endswith((".png", ".bin", ".json", ".csv", "/live")):
            assert answer.status_code == 401
            assert answer.headers["content-type"] == "application/problem+json"
        else:
            assert answer.status_code == 303
            assert answer.headers["location"].startswith("/login")
        assert guest.fake.requests == []


@pytest.mark.parametrize("path", [concrete(path) for module in PAGE_MODULES if hasattr(module, "ROUTES") for path in module.ROUTES.writes])
@pytest.mark.parametrize(
    ("headers", "with_token", "passes"),
    [
        ({"sec-fetch-site": "same-origin"}, True, True),
        ({"sec-fetch-site": "same-origin"}, False, False),
        ({"sec-fetch-site": "cross-site"}, True, False),
        ({"sec-fetch-site": "same-site"}, True, False),
        ({"sec-fetch-site": "none"}, True, False),
        ({"origin": ORIGIN}, True, True),
        ({"origin": "http://evil.example"}, True, False),
        ({"origin": "null"}, True, False),
        ({}, True, False),
    ],
)
async def test_only_our_own_forms_can_write(path: str, headers: dict[str, str], with_token: bool, passes: bool) -> None:
    async with visitor("admin") as admin:
        token = csrf_token("admin-token", "n0nce")
        fields = {"csrf": token if with_token else "", "replicas": "9", "name": "n", "days": "5", "role": "viewer", "subject": "s"}
        answer = await admin.http.post(path, data=fields, headers=headers)
        assert (answer.status_code != 403) is passes
        if not passes:
            assert [one for one in admin.fake.requests if one[0] != "GET"] == []
            assert "Nothing was changed" in answer.text


async def test_a_form_token_of_another_session_is_refused() -> None:
    assert csrf_matches("mine", csrf_token("mine", "a"))
    assert not csrf_matches("mine", csrf_token("theirs", "a"))
    assert not csrf_matches("mine", "")
    assert not csrf_matches("mine", "ä.ö")


@pytest.mark.parametrize("session", ["cat.png", "a/series.json", "cat.txt", "rows.csv"])
async def test_a_session_of_any_name_has_a_page_and_each_person_their_own(session: str) -> None:
    async with visitor() as operator:
        known = operator.fake.world.sessions()
        known.append(replace(known[0], session=session))
        operator.fake.tokens["bob-token"] = replace(operator.fake.tokens["operator-token"], subject="bob@example.org")
        for token, name in (("operator-token", "operator-person"), ("bob-token", "bob@example.org")):
            operator.http.cookies.set(COOKIE, token)
            page = (await operator.http.get(f"/sessions/{known[0].pool}/{session}")).text
            assert f"Account of {name}" in page
            assert csrf_matches(token, operator.form_token(page))
        missing = await operator.http.get("/sessions/default/chat/nobody.csv")
        assert missing.headers["content-type"].startswith("text/html")


async def test_the_token_may_come_as_a_header() -> None:
    async with visitor() as operator:
        headers = {"sec-fetch-site": "same-origin", "x-csrf-token": csrf_token("operator-token", "n")}
        answer = await operator.http.post("/pools/default/chat/plans", data={"replicas": "9"}, headers=headers)
        assert answer.headers["location"] == "/plans/p-0001"


@pytest.mark.parametrize("path", ["/", "/login", "/nowhere", "/static/x/y.css", "/pools.csv", "/migrations/none"])
async def test_every_answer_carries_the_security_headers(path: str) -> None:
    async with visitor() as operator:
        headers = (await operator.http.get(path)).headers
        assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"
        assert "strict-transport-security" not in headers


@pytest.mark.parametrize(("name", "is_whole"), [("js/main.js", False), ("css/fairlead.css", False), ("icon.svg", True)])
async def test_scripts_and_style_sheets_have_only_the_headers_that_mean_something_for_them(name: str, is_whole: bool) -> None:
    async with visitor() as operator:
        headers = (await operator.http.get(load_assets().path(name))).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["referrer-policy"] == "same-origin"
        for of_pages in ("content-security-policy", "x-frame-options", "cross-origin-opener-policy", "permissions-policy"):
            assert (of_pages in headers) is is_whole


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("127.0.0.1:8080", True),
        ("localhost:9", True),
        ("[::1]:8080", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
    ],
)
async def test_only_our_own_host_names_are_answered(host: str, served: bool) -> None:
    async with visitor() as operator:
        answer = await operator.http.get("/help", headers={"host": host})
        assert (answer.status_code != 421) is served
        if not served:
            assert answer.status_code == 421
            assert "FAIRLEAD_PUBLIC_URL" in answer.text


SAME = ("ops.example.com", "ops.example.com:443", "ops.example.com.", "OPS.example.com", "ops.example.com.:443")


@pytest.mark.parametrize(
    "public", ["https://ops.example.com", "https://ops.example.com:443", "https://Ops.Example.com./", "HTTPS://ops.example.com:443/x"]
)
@pytest.mark.parametrize(("host", "served"), [*((one, True) for one in SAME), ("ops.example.com:80", False), ("ops.example.com:8443", False),
    ("ops.example.com:", True), ("x@ops.example.com", False), ("ops.example.com,evil", False), ("ops.example.com:99999", False)])  # fmt: skip
def test_an_address_is_compared_by_its_parts(public: str, host: str, served: bool) -> None:
    settings = web_settings(public)
    assert settings.allows_host(host) is served
    if served:
        for origin in ("https://ops.example.com", "https://ops.example.com:443"):
            headers = {"origin": origin, "host": host}
            assert cross_site_refusal("POST", headers, "http", settings) is None, "TLS may end before this server"
        assert cross_site_refusal("POST", {"origin": "https://evil.example", "host": host}, "http", settings) is not None
        assert cross_site_refusal("POST", {"origin": "null", "host": host}, "http", settings) is not None


def test_sites_of_one_host_have_cookies_of_their_own() -> None:
    urls = ["http://127.0.0.1:8080", "http://127.0.0.1:8082", "https://ops.example.com", "https://ops.example.com/a", "https://ops.example.com/b",
        "https://ops.example.com:8443", "https://ops.example.com:8443/a"]  # fmt: skip
    names = [web_settings(url).cookie_name(urlsplit(url).netloc) for url in urls]
    assert len(set(names)) == len(names)
    assert names[0] == COOKIE
    forwarded = [web_settings("https://ops.example.com").cookie_name(f"localhost:{port}") for port in (8080, 8081)]
    assert len(set(forwarded)) == 2, "two forwarded ports of clusters whose settings are alike"
    assert all(name.startswith("__Host-") for name in (*names[2:], *forwarded))


async def test_a_site_beside_another_one_leaves_its_session_alone() -> None:
    async with visitor(None, public_url="http://127.0.0.1:8082") as guest:
        answer = await guest.http.get("/pools", headers={"cookie": f"{COOKIE}=of-the-other"})
        assert answer.status_code == 303
        assert "set-cookie" not in answer.headers
        assert "ended=1" not in answer.headers["location"]


async def test_the_cookie_is_bound_to_the_host_over_tls() -> None:
    async with visitor(None, public_url="https://fairlead.example") as guest:
        answer = await guest.http.post("/login", data={"token": "viewer-token"}, headers={"sec-fetch-site": "same-origin"})
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-fairlead=fls_")
        assert all(part in cookie for part in ("; Secure", "; HttpOnly", "; Path=/", "SameSite=lax"))
        assert "Domain" not in cookie
        assert answer.headers["strict-transport-security"] == "max-age=31536000"


async def test_the_cookie_over_plain_http_has_another_name_and_is_not_secure() -> None:
    async with visitor(None) as guest:
        answer = await guest.http.post("/login", data={"token": "viewer-token"}, headers={"sec-fetch-site": "same-origin"})
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}=fls_")
        assert "Secure" not in cookie
        assert "HttpOnly" in cookie


async def test_every_login_gets_a_session_of_its_own() -> None:
    async with visitor(None) as guest:
        seen = set()
        for _ in range(2):
            answer = await guest.http.post("/login", data={"token": "viewer-token"}, headers={"sec-fetch-site": "same-origin"})
            seen.add(answer.cookies[COOKIE])
        assert len(seen) == 2


async def test_a_login_from_another_site_is_refused() -> None:
    async with visitor(None) as guest:
        answer = await guest.http.post("/login", data={"token": "viewer-token"}, headers={"sec-fetch-site": "cross-site"})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("cookie", "path", "most"), [("", "/login", 64 << 10), (f"{COOKIE}=made-up", "/keys/new", 1 << 20)], ids=["login", "a form"]
)
@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=b", "application/x-www-form-urlencoded"])
async def test_no_more_of_a_form_is_read_than_forms_have(cookie: str, path: str, most: int, kind: str) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'--b\r\ncontent-disposition: form-data; name="f"; filename="x"\r\n\r\n' if kind.startswith("multipart") else b""
        while sent < 8 << 20:
            sent += 16384
            yield b"x" * 16383 + b"&"

    async with visitor(None) as guest:
        headers = {"sec-fetch-site": "same-origin", "content-type": kind, "cookie": cookie}
        answer = await guest.http.post(path, content=endless(), headers=headers)
        assert (answer.status_code, "larger than" in answer.text) == (413, True)
        assert sent <= most + 2 * 16384


async def test_the_upload_of_somebody_who_is_not_signed_in_is_not_read() -> None:
    async def upload() -> AsyncIterator[bytes]:
        raise AssertionError("it was read")
        yield b""

    async with visitor(None) as guest:
        headers = {"sec-fetch-site": "same-origin", "content-type": "multipart/form-data; boundary=b", "cookie": f"{COOKIE}=made-up"}
        answer = await guest.http.post("/pools/default/chat/simulator", content=upload(), headers=headers)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login")


@pytest.mark.parametrize("cookie", ["x" * 600, "a b\tc", "tök"])
async def test_a_cookie_that_cannot_be_ours_is_no_session(cookie: str) -> None:
    async with visitor(None) as guest:
        answer = await guest.http.get("/", headers={b"cookie": f"{COOKIE}={cookie}".encode()})
        assert answer.status_code == 303
        assert guest.fake.requests == []


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/pools?x=1", "/pools?x=1"),
        (None, "/"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/a\nb", "/"),
        ("javascript:alert(1)", "/"),
    ],
)
def test_the_way_back_after_a_login_stays_on_this_site(target: str | None, path: str) -> None:
    assert local_path(target) == path


@pytest.mark.parametrize(("url", "secure"), [("ftp://x", None), ("no url", None), ("", None), ("http://fairlead.example", True)])
def test_addresses_that_cannot_work_are_refused_with_a_remedy(url: str, secure: bool | None) -> None:
    with pytest.raises(InvalidInput, match="FAIRLEAD_PUBLIC_URL"):
        web_settings(url, secure)


async def test_links_and_routes_keep_a_base_path() -> None:
    async with visitor(public_url="http://127.0.0.1:8080/ops/infer") as operator:
        page = await operator.http.get("/ops/infer/pools")
        assert page.status_code == 200
        links = [part.split('"', 1)[0] for part in page.text.replace('src="', 'href="').split('href="')[1:]]
        assert all(link.startswith(("/ops/infer/", "#main")) for link in links)
        asset = next(link for link in links if link.endswith(".css"))
        assert (await operator.http.get(asset)).status_code == 200
        assert (await operator.http.get("/pools")).status_code == 404

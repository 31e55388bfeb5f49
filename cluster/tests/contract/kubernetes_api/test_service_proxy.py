"""Requests through the API server to the pods behind a Service, as kube-apiserver makes them (v1.32's source)."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest


class Echo(BaseHTTPRequestHandler):
    """A server that answers with the request it got."""

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        told = {
            "method": self.command,
            "path": self.path,
            "body": body,
            "headers": {name.lower(): value for name, value in self.headers.items()},
        }
        data = json.dumps(told).encode()
        self.send_response(418 if self.path == "/teapot" else 200)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("X-Own", "yes")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - names that the handler calls

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture
def services(api: httpx.Client, core: str, port: int) -> str:
    """Return the path of Services, one of which has a ready pod behind its port `http`."""
    container = {"name": "c", "image": "i:1", "ports": [{"name": "web", "containerPort": port}]}
    pod = {"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {"containers": [container]}}
    assert api.post(f"{core}/pods", json=pod).status_code == 201
    status = {"phase": "Running", "podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    merge = {"content-type": "application/merge-patch+json"}
    assert api.patch(f"{core}/pods/web/status", content=json.dumps({"status": status}), headers=merge).status_code == 200
    ports = [{"name": "http", "port": 80, "targetPort": "web"}]
    for name, selector in (("web", {"app": "web"}), ("proxy-none", {"app": "none"})):
        service = {"metadata": {"name": name}, "spec": {"selector": selector, "ports": ports}}
        assert api.post(f"{core}/services", json=service).status_code == 201
    return f"{core}/services"


@pytest.mark.parametrize("name", ["web:80", "web:http", "http:web:http", "http:web:80"])
def test_a_request_reaches_a_pod_by_the_services_port(api: httpx.Client, services: str, name: str) -> None:
    told = api.get(f"{services}/{name}/proxy/v1/pools?limit=2&a=%2F").json()
    assert (told["method"], told["path"]) == ("GET", "/v1/pools?limit=2&a=/")


def test_the_callers_credentials_stay_here_and_all_else_goes_on(api: httpx.Client, services: str) -> None:
    answer = api.post(
        f"{services}/web:80/proxy/v1/x", content=b'{"a": 1}', headers={"x-fairlead-token": "mine", "content-type": "application/json"}
    )
    told = answer.json()
    assert (told["method"], told["body"], told["headers"]["x-fairlead-token"]) == ("POST", '{"a": 1}', "mine")
    assert "authorization" not in told["headers"]
    assert told["headers"]["x-forwarded-uri"] == f"{services}/web:80/proxy/v1/x"
    assert answer.headers["x-own"] == "yes" and "access-control-allow-origin" not in answer.headers


def test_a_slash_that_was_quoted_is_none_behind_the_proxy(api: httpx.Client, services: str) -> None:
    """The real server decodes the path before it passes it on."""
    assert api.get(f"{services}/web:80/proxy/a%2Fb/%20c").json()["path"] == "/a/b/%20c"


def test_the_answers_status_is_the_servers_own(api: httpx.Client, services: str) -> None:
    assert api.get(f"{services}/web:80/proxy/teapot").status_code == 418


def test_without_a_path_one_is_sent_to_the_root(api: httpx.Client, services: str) -> None:
    answer = api.get(f"{services}/web:80/proxy?a=1")
    assert (answer.status_code, answer.headers["location"]) == (301, f"{services}/web:80/proxy/?a=1")


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("web:81", 503, 'no service port 81 found for service "web"'),
        ("web", 503, 'no endpoints available for service "web"'),
        ("proxy-none:80", 503, 'no endpoints available for service "proxy-none:80"'),
        ("ftp:web:80", 400, 'invalid service request "ftp:web:80"'),
        ("nobody:80", 404, 'services "nobody" not found'),
    ],
)
def test_what_cannot_be_reached_is_a_status(api: httpx.Client, services: str, name: str, code: int, told: str) -> None:
    answer = api.get(f"{services}/{name}/proxy/v1/pools")
    assert (answer.status_code, answer.json()["kind"], answer.json()["message"]) == (code, "Status", told)


def test_a_server_that_is_away_is_a_status(api: httpx.Client, services: str, core: str) -> None:
    merge = {"content-type": "application/merge-patch+json"}
    api.patch(f"{core}/services/web", content='{"spec": {"ports": [{"name": "http", "port": 80, "targetPort": 1}]}}', headers=merge)
    answer = api.get(f"{services}/web:80/proxy/v1/pools")
    assert answer.status_code == 503 and answer.json()["message"].startswith("error trying to reach service: ")

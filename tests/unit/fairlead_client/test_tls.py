"""Every client checks certificates as kubectl does: chain, dates and name, on every Python.

`ssl.create_default_context` of Python 3.13 and later also sets VERIFY_X509_STRICT. Here it is set on every Python.
"""

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fairlead.errors import InvalidInput
from fairlead_api.access.identity_provider import OpenIdProvider
from fairlead_api.infra.errors import IdentityProviderUnavailable
from fairlead_api.oidc_settings import OidcSettings
from fairlead_client.internal import SystemApi
from fairlead_client.outcomes import Taken
from fairlead_client.public.calling import ApiCalls
from fairlead_client.tls import client_context
from fairlead_process.kubernetes_api import ClusterUnavailable, KubernetesApi, open_session
from fairlead_serve.probing import Prober
from fairlead_simulator.replay.http_client import AnswerReader, ConnectFailed, HttpClient, Origin
from fairlead_web.live.api_connections import api_client
from processkube.kubeconfig import read_kubeconfig

KUBECONFIG = (
    "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{{name: x, cluster: {{server: '{url}', "
    "certificate-authority: '{file}'}}}}]\ncontexts: [{{name: x, context: {{cluster: x, user: x}}}}]\nusers: [{{name: x, user: {{token: t}}}}]\n"
)
PLAIN: tuple[str, ...] = ("basic constraints", "identifiers")
"""The extensions that a plain `openssl req -x509` writes: no key usage."""
AUTHORITIES = {"no key usage": PLAIN, "no identifiers": ("basic constraints", "key usage"), "neither": ("basic constraints",)}


class NotTaken(Exception):
    """A call that was not answered with success, with its outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A TLS server that answers every request with `{}`, and the file of its authority."""

    url: str
    authority: Path


def signed(subject: str, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in (subject, "authority")]
    built = x509.CertificateBuilder().subject_name(names[0]).issuer_name(names[1]).public_key(key.public_key())
    return (
        built.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=9))
    )


def make_certificates(folder: Path, extensions: tuple[str, ...], address: str) -> ssl.SSLContext:
    """Make an authority with these extensions, and a certificate of a server at this address that it signs."""
    root, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = signed("authority", root, root)
    identifier = x509.SubjectKeyIdentifier.from_public_key(root.public_key())
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    found: dict[str, x509.ExtensionType] = {
        "basic constraints": x509.BasicConstraints(ca=True, path_length=None),
        "identifiers": identifier,
    }
    for name in extensions:
        authority = authority.add_extension(usage if name == "key usage" else found[name], critical=name == "basic constraints")
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    leaf = signed("server", key, root).add_extension(alternative, critical=False).sign(root, hashes.SHA256())
    pem = serialization.Encoding.PEM
    (folder / "ca.crt").write_bytes(authority.sign(root, hashes.SHA256()).public_bytes(pem))
    (folder / "tls.crt").write_bytes(leaf.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "tls.key").write_bytes(private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


@asynccontextmanager
async def serving(folder: Path, extensions: tuple[str, ...], address: str = "127.0.0.1") -> AsyncIterator[Server]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
        await reader.readexactly(length)
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\nconnection: close\r\n\r\n" + b'{"pools":[]}'
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=make_certificates(folder, extensions, address))
    try:
        yield Server(url=f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", authority=folder / "ca.crt")
    finally:
        server.close()


def kubeconfig(server: Server) -> str:
    file = server.authority.parent / "kubeconfig"
    file.write_text(KUBECONFIG.format(url=server.url, file=server.authority), encoding="utf-8")
    return str(file)


async def ask_kubernetes(server: Server) -> None:
    api = await KubernetesApi.connect(kubeconfig(server))
    try:
        assert await api.call("GET", "/api") == {"pools": []}
    finally:
        await api.close()


async def ask_as_kopf(server: Server) -> None:
    url, session = await open_session(kubeconfig(server), 1)
    async with session, session.get(url) as response:
        assert response.status == 200


async def ask_as_processkube(server: Server) -> None:
    connection = read_kubeconfig(Path(kubeconfig(server)))
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]), ssl=connection.tls)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()


async def ask_as_router(server: Server) -> None:
    async with SystemApi(server.url, "token") as api:
        if not isinstance(await api.held_pools(), Taken):
            raise NotTaken


async def ask_as_person(server: Server) -> None:
    async with ApiCalls([server.url, server.url]) as api:
        assert (await api._http.get("/")).status_code == 200


async def ask_as_page(server: Server) -> None:
    async with api_client(server.url, None) as api:
        assert (await api.get("/")).status_code == 200


async def ask_identity_provider(server: Server) -> None:
    settings = OidcSettings(issuer=server.url, client_id="fairlead", client_secret="secret")
    status, _ = await OpenIdProvider(settings)._ask("GET", server.url)
    assert status == 200


async def ask_engine(server: Server) -> None:
    prober = Prober()
    health = await prober.health(server.url)
    await prober.close()
    if not health.ready:
        raise OSError(health.words)


async def replay(server: Server) -> None:
    client, reader = HttpClient(), AnswerReader()
    await client.request(Origin.parse(server.url), b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"", reader)
    client.close()
    assert reader.status == 200


CLIENTS = [
    ask_kubernetes, ask_as_kopf, ask_as_processkube, ask_as_router, ask_as_person, ask_as_page, ask_identity_provider, ask_engine, replay,
]  # fmt: skip


REFUSALS = (OSError, httpx.ConnectError, aiohttp.ClientError, ClusterUnavailable, IdentityProviderUnavailable, ConnectFailed, NotTaken)


@pytest.fixture(autouse=True)
def strict_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make default contexts strict, as on Python 3.13 and later."""
    made = ssl.create_default_context

    def create(*arguments: object, **more: object) -> ssl.SSLContext:
        context = made(*arguments, **more)  # type: ignore[arg-type]
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", create)


@pytest.mark.parametrize("authority", AUTHORITIES)
@pytest.mark.parametrize("ask", CLIENTS, ids=lambda ask: ask.__name__)
async def test_an_authority_without_formalities_is_trusted(
    ask: Callable[[Server], Awaitable[None]], authority: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, AUTHORITIES[authority]) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(server.authority))
        await ask(server)


@pytest.mark.parametrize("ask", CLIENTS, ids=lambda ask: ask.__name__)
async def test_another_name_and_another_authority_are_refused(
    ask: Callable[[Server], Awaitable[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    make_certificates(tmp_path / "other", PLAIN, "127.0.0.1")
    for address, authority in (("127.0.0.2", tmp_path / "ca.crt"), ("127.0.0.1", tmp_path / "other" / "ca.crt")):
        async with serving(tmp_path, PLAIN, address) as server:
            monkeypatch.setenv("SSL_CERT_FILE", str(authority))
            with pytest.raises(REFUSALS):
                await ask(Server(url=server.url, authority=authority))


def test_a_file_without_certificates_is_refused_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "absent"))
    with pytest.raises(InvalidInput, match=r"SSL_CERT_FILE: .*absent.* cannot be used; name a readable file"):
        client_context()
    (tmp_path / "absent").write_text("no certificate", encoding="utf-8")
    with pytest.raises(InvalidInput, match="PEM form"):
        client_context()

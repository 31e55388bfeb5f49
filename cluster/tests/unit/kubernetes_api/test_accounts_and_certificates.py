"""Accounts and certificates: made once, kept, renewed when they no longer fit."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

from cryptography import x509

from processkube.kubernetes_api.serving.accounts import ensure_accounts
from processkube.kubernetes_api.serving.certificates import ensure_certificates
from processkube.private_files import write_private


def test_accounts_are_made_once_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "tokens.csv"
    first = ensure_accounts(file, ["acme/operator"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert ensure_accounts(file).all() == first.all()
    tokens = {account.token for account in first.all()}
    assert len(tokens) == 3
    assert first.named("acme-operator").username == "system:serviceaccount:acme:operator"
    assert min(map(len, tokens)) >= 40
    for account in first.all():
        assert first.authenticate(account.token) == account
    assert first.authenticate("") is None
    assert first.authenticate(first.named("admin").token + "x") is None


def test_an_account_added_later_leaves_the_others_alone(tmp_path: Path) -> None:
    file = tmp_path / "tokens.csv"
    kept = ensure_accounts(file).named("admin")
    file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if "kubelet" not in line))
    again = ensure_accounts(file)
    assert again.named("admin") == kept
    assert again.named("kubelet").username == "system:node:sandbox"


def test_certificates_are_reused_while_they_fit_the_host(tmp_path: Path) -> None:
    first = ensure_certificates(tmp_path, "127.0.0.1")
    authority, server = first.authority.read_bytes(), first.certificate.read_bytes()
    assert ensure_certificates(tmp_path, "localhost").certificate.read_bytes() == server
    other = ensure_certificates(tmp_path, "10.1.2.3")
    assert other.certificate.read_bytes() != server
    assert other.authority.read_bytes() == authority
    assert stat.S_IMODE(other.key.stat().st_mode) == 0o600
    assert isinstance(other.server_context(), ssl.SSLContext)


def test_the_server_certificate_is_signed_by_the_authority(tmp_path: Path) -> None:
    found = ensure_certificates(tmp_path, "127.0.0.1")
    authority = x509.load_pem_x509_certificate(found.authority.read_bytes())
    server = x509.load_pem_x509_certificate(found.certificate.read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "localhost" in names.get_values_for_type(x509.DNSName)


def test_a_private_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_private(path, b"one")
    write_private(path, b"two")
    assert path.read_bytes() == b"two"
    assert [one.name for one in path.parent.iterdir()] == ["file"]

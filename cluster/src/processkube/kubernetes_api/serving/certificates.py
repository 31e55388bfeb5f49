"""The cluster's certificate authority, and the server certificate signed by it."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from processkube.private_files import write_private

_LIFETIME = timedelta(days=3650)
_RENEW_BEFORE = timedelta(days=30)
_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """The paths of the PEM files that the server uses."""

    authority: Path
    certificate: Path
    key: Path

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        return context


def ensure_certificates(folder: Path, host: str) -> Certificates:
    """Return the certificates in `folder`. A certificate that is missing, nearly expired or not valid for `host` is
    made first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = Certificates(authority=folder / "ca.crt", certificate=folder / "apiserver.crt", key=folder / "apiserver.key")
    authority_key = folder / "ca.key"
    if not (found.authority.exists() and authority_key.exists() and _lasts(found.authority)):
        _make_authority(found.authority, authority_key)
        found.certificate.unlink(missing_ok=True)
    if not (found.certificate.exists() and found.key.exists() and _lasts(found.certificate) and _covers(found.certificate, host)):
        _make_server(found, authority_key, host)
    return found


def _load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def _lasts(path: Path) -> bool:
    return _load(path).not_valid_after_utc > datetime.now(UTC) + _RENEW_BEFORE


def _covers(path: Path, host: str) -> bool:
    names = _load(path).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    known = {str(address) for address in names.get_values_for_type(x509.IPAddress)} | set(names.get_values_for_type(x509.DNSName))
    return host in known


def _make_authority(certificate: Path, key_file: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "processkube-ca")])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    built = (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    write_private(key_file, _key_text(key))
    write_private(certificate, built.public_bytes(serialization.Encoding.PEM))


def _make_server(target: Certificates, authority_key: Path, host: str) -> None:
    signer = serialization.load_pem_private_key(authority_key.read_bytes(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    authority = _load(target.authority)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "processkube-apiserver")])
    addresses = {"127.0.0.1", "::1"}
    names = set(_NAMES)
    try:
        addresses.add(str(ipaddress.ip_address(host)))
    except ValueError:
        names.add(host)
    alternatives: list[x509.GeneralName] = [x509.DNSName(one) for one in sorted(names)]
    alternatives += [x509.IPAddress(ipaddress.ip_address(one)) for one in sorted(addresses)]
    built = (
        _builder(name, authority.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    write_private(target.key, _key_text(key))
    write_private(target.certificate, built.public_bytes(serialization.Encoding.PEM))


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_text(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())

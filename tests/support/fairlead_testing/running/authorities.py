"""Certificate authorities of tests, and the certificates that they sign."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(slots=True)
class Authority:
    """A certificate authority, and the certificates that it signs. Its own certificate has no key usage, as in some
    clusters.
    """

    folder: Path
    name: str
    key: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def pem(self) -> str:
        """Return the authority's own certificate in PEM."""
        return _text(self._built(self.name, "", self.key, x509.BasicConstraints(ca=True, path_length=None))).decode()

    def written(self) -> Path:
        """Write `pem` to a file and return its path."""
        path = self.folder / f"{self.name}.pem"
        path.write_text(self.pem(), encoding="utf-8")
        return path

    def signed(self, common: str, organization: str = "", addresses: Sequence[str] = (), names: Sequence[str] = ()) -> Path:
        """Return a file with a signed certificate and its key.

        It is a client's certificate. With DNS `names` it is a server's too, for these names and `addresses`.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = x509.BasicConstraints(ca=False, path_length=None)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if names else [])])
        known = [*map(x509.DNSName, names), *(x509.IPAddress(ipaddress.ip_address(one)) for one in addresses)]
        extensions = (leaf, usage, *([x509.SubjectAlternativeName(known)] if known else []))
        path = self.folder / f"{self.name}-{common.replace(':', '-')}.pem"
        path.write_bytes(_text(self._built(common, organization, key, *extensions)) + private_text(key))
        return path

    def _built(self, common: str, organization: str, key: Any, *extensions: x509.ExtensionType) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_subject(common, organization))
            .issuer_name(_subject(self.name, ""))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(self.key, hashes.SHA256())


def private_text(key: Any) -> bytes:
    """Return a private key in PEM."""
    text: bytes = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return text


def _text(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _subject(common: str, organization: str) -> x509.Name:
    parts = [(NameOID.COMMON_NAME, common), *([(NameOID.ORGANIZATION_NAME, organization)] if organization else [])]
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in parts])

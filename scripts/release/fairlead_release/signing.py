"""Signatures with a key from a file: ECDSA P-256 over SHA-256, in base64, as `cosign --key` and `openssl dgst` write
them.

An image's signature and its attestations are images too, tagged with its digest (`sha256-….sig`, `sha256-….att`).
Source: https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md and
https://github.com/secure-systems-lab/dsse/blob/master/protocol.md.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fairlead_release.layouts import Descriptor, Layout, as_json

STATEMENT = "application/vnd.in-toto+json"
_ENVELOPE = "application/vnd.dsse.envelope.v1+json"
_PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_SIGNATURE = "dev.cosignproject.cosign/signature"
_HASH = ec.ECDSA(hashes.SHA256())

Document = dict[str, Any]


class Signer:
    """The private key of a PEM file without a passphrase."""

    def __init__(self, path: Path) -> None:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != ec.SECP256R1.name:
            raise _unusable(path)
        self._key = key

    @property
    def public(self) -> bytes:
        """The public key as PEM."""
        return self._key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    def sign(self, content: bytes) -> str:
        """Return the signature of the content in base64."""
        return base64.b64encode(self._key.sign(content, _HASH)).decode()

    def envelope(self, statement: Document) -> Document:
        """Return the signed statement in a DSSE envelope."""
        payload = as_json(statement)
        signature = {"keyid": "", "sig": self.sign(_encoded(payload))}
        return {"payloadType": STATEMENT, "payload": base64.b64encode(payload).decode(), "signatures": [signature]}


class Judge:
    """The public key of a PEM file."""

    def __init__(self, path: Path) -> None:
        key = serialization.load_pem_public_key(path.read_bytes())
        if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != ec.SECP256R1.name:
            raise _unusable(path)
        self._key = key

    def check(self, name: str, content: bytes, signature: str) -> None:
        """Raise ValueError with `name` if the signature is not this key's signature of this content."""
        try:
            self._key.verify(base64.b64decode(signature, validate=True), content, _HASH)
        except (InvalidSignature, ValueError) as error:
            raise ValueError(f"the signature of {name} is not by this key, or it was changed: do not use it") from error

    def statement(self, name: str, envelope: Document) -> Document:
        """Return the statement in an envelope. Raises ValueError as `check` does."""
        payload = base64.b64decode(envelope["payload"])
        self.check(name, _encoded(payload), envelope["signatures"][0]["sig"])
        found: Document = json.loads(payload)
        return found


def _unusable(path: Path) -> ValueError:
    return ValueError(f"{path.name} is no key on the curve P-256: make one with `openssl ecparam -name prime256v1 -genkey -noout`")


def _encoded(payload: bytes) -> bytes:
    """Return the payload in DSSE's pre-authentication encoding."""
    return b"DSSEv1 %d %s %d %s" % (len(STATEMENT), STATEMENT.encode(), len(payload), payload)


def beside(digest: str, kind: str) -> str:
    """Return the tag of an image's signature (`sig`) or of its attestations (`att`)."""
    return f"{digest.replace(':', '-')}.{kind}"


def sign_image(layout: Layout, digest: str, reference: str, signer: Signer) -> None:
    """Sign the image `digest` and store the signature. `reference` is the image's name without a tag."""
    critical = {
        "identity": {"docker-reference": reference},
        "image": {"docker-manifest-digest": digest},
        "type": "cosign container image signature",
    }
    payload = as_json({"critical": critical, "optional": None})
    _keep(layout, beside(digest, "sig"), [layout.add(payload, _PAYLOAD, {_SIGNATURE: signer.sign(payload)})])


def attest_image(layout: Layout, digest: str, statements: Sequence[Document], signer: Signer) -> None:
    """Sign statements about the image `digest`, and store them under the tag of its attestations."""
    layers = [
        layout.add(as_json(signer.envelope(one)), _ENVELOPE, {_SIGNATURE: "", "predicateType": one["predicateType"]}) for one in statements
    ]
    _keep(layout, beside(digest, "att"), layers)


def check_image(layout: Layout, digest: str, name: str, judge: Judge) -> list[Document]:
    """Return the statements about the image.

    Raises ValueError if a signature is missing, or is that of another image or another key.
    """
    for kind in ("sig", "att"):
        if beside(digest, kind) not in layout.tags:
            raise ValueError(f"{name} has no {'signature' if kind == 'sig' else 'attestation'}: do not use it")
    [layer] = _layers(layout, beside(digest, "sig"))
    payload = layout.path(layer["digest"]).read_bytes()
    judge.check(name, payload, layer["annotations"][_SIGNATURE])
    if json.loads(payload)["critical"]["image"]["docker-manifest-digest"] != digest:
        raise ValueError(f"the signature of {name} is another image's: do not use it")
    stated = [judge.statement(name, layout.read(one["digest"])) for one in _layers(layout, beside(digest, "att"))]
    if any(digest.removeprefix("sha256:") not in {one["digest"]["sha256"] for one in found["subject"]} for found in stated):
        raise ValueError(f"an attestation of {name} is another image's: do not use it")
    return stated


def _layers(layout: Layout, tag: str) -> list[Descriptor]:
    found: list[Descriptor] = layout.read(layout.tags[tag]["digest"])["layers"]
    return found


def _keep(layout: Layout, tag: str, layers: list[Descriptor]) -> None:
    config: Mapping[str, Any] = {
        "architecture": "",
        "os": "",
        "config": {},
        "created": "0001-01-01T00:00:00Z",
        "rootfs": {"type": "layers", "diff_ids": [one["digest"] for one in layers]},
    }
    layout.tag(tag, layout.add(as_json(config), _CONFIG), layers)

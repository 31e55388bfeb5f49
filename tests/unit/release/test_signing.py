"""A release with one changed byte, or signed with another key, is refused."""

import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fairlead_release import main
from fairlead_release.layouts import Layout, as_json
from fairlead_release.main import PROCESSES, Release, files, tags, verify
from fairlead_release.provenance import Origin
from fairlead_release.signing import Judge, Signer, beside, sign_image

VERSION = "1.2.3"


def a_key(path: Path, curve: ec.EllipticCurve | None = None) -> Path:
    key = ec.generate_private_key(curve or ec.SECP256R1())
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    )
    return path


def an_image(folder: Path) -> None:
    """Write an index with an image for each of two architectures, without layers."""
    layout = Layout(folder)
    manifests = []
    for architecture in ("amd64", "arm64"):
        labels = {"Labels": {"org.opencontainers.image.base.name": "base"}}
        config = layout.add(as_json({"architecture": architecture, "config": labels}), "application/vnd.oci.image.config.v1+json")
        manifests.append(layout.tag(architecture, config, []) | {"platform": {"architecture": architecture, "os": "linux"}})
    index = layout.add(as_json({"schemaVersion": 2, "manifests": manifests}), "application/vnd.oci.image.index.v1+json")
    named = index | {"annotations": {"org.opencontainers.image.ref.name": VERSION}}
    (folder / "index.json").write_bytes(as_json({"schemaVersion": 2, "manifests": [named]}))


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Return a signed release of one wheel, four images for two architectures, and the chart."""
    out = tmp_path / "out"
    for process in PROCESSES:
        an_image(out / "images" / process)
    (out / "fairlead.whl").write_bytes(b"a wheel")
    origin = Origin(VERSION, "c" * 40, "https://git.example/fairlead")
    Release(out, "registry.example/ours", origin, 1_700_000_000, Signer(a_key(tmp_path / "key"))).assemble("Notes.\n")
    return out


def test_a_release_is_as_signed(release: Path) -> None:
    lines = list(verify(release, release / "fairlead.pub"))
    assert sum("as signed" in line for line in lines) == len(files(release)) + 1
    assert sum("provenance" in line for line in lines if "signed, with" in line) == 3 * len(PROCESSES) + 1
    assert sum("spdx.dev" in line for line in lines) == 2 * len(PROCESSES)


def test_no_file_can_be_changed_taken_away_or_added(release: Path) -> None:
    choice = random.Random(7)
    whole = [
        path for path in sorted(release.rglob("*")) if path.is_file() and path.name not in {"fairlead.pub", "index.json", "oci-layout"}
    ]
    for path in whole:
        before = path.read_bytes()
        place = choice.randrange(len(before))
        path.write_bytes(before[:place] + bytes([before[place] ^ 1]) + before[place + 1 :])
        with pytest.raises(ValueError):
            list(verify(release, release / "fairlead.pub"))
        path.write_bytes(before)
    (release / "added").write_text("x")
    with pytest.raises(ValueError, match="added does not have the checksum in SHA256SUMS"):
        list(verify(release, release / "fairlead.pub"))
    (release / "added").unlink()
    (release / "fairlead.whl").unlink()
    with pytest.raises(ValueError, match=r"fairlead\.whl: listed in SHA256SUMS, but missing"):
        list(verify(release, release / "fairlead.pub"))


def _without(kind: str) -> Callable[[Path], None]:
    def change(release: Path) -> None:
        layout = Layout(release / "images" / "api")
        left = [one for tag, one in layout.tags.items() if not tag.endswith(kind)]
        (release / "images" / "api" / "index.json").write_bytes(as_json({"schemaVersion": 2, "manifests": left}))

    return change


def _of_another(release: Path) -> None:
    """Place the signature of one image beside another one."""
    layout = Layout(release / "images" / "api")
    [first, second] = [tag for tag in layout.tags if tag.endswith(".sig")][:2]
    moved = layout.tags[first] | {"annotations": {"org.opencontainers.image.ref.name": second}}
    left = [one for tag, one in layout.tags.items() if tag != second]
    (release / "images" / "api" / "index.json").write_bytes(as_json({"schemaVersion": 2, "manifests": [*left, moved]}))


def _by_another(release: Path) -> None:
    layout = Layout(release / "images" / "api")
    digest = layout.tags[VERSION]["digest"]
    sign_image(layout, digest, "registry.example/ours/fairlead/api", Signer(a_key(release.parent / "another")))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_without(".sig"), "api has no signature"),
        (_without(".att"), "api has no attestation"),
        (_of_another, "another image's"),
        (_by_another, "is not by this key"),
    ],
    ids=["no signature", "no attestation", "of another image", "by another key"],
)
def test_an_image_whose_signature_is_not_its_own_is_refused(release: Path, change: Callable[[Path], None], words: str) -> None:
    change(release)
    with pytest.raises(ValueError, match=words):
        list(verify(release, release / "fairlead.pub"))


def test_openssl_takes_the_signature_of_the_checksums(release: Path) -> None:
    if not shutil.which("openssl"):
        pytest.skip("needs openssl")
    command = f"base64 -d {release}/SHA256SUMS.sig | openssl dgst -sha256 -verify {release}/fairlead.pub -signature /dev/stdin {release}/SHA256SUMS"
    assert subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False).stdout.strip() == "Verified OK"


def test_an_images_signature_comes_before_the_image(release: Path) -> None:
    """Clusters that admit only signed images find the signature when the image appears."""
    of_api = [line.split()[2] for line in tags(release) if "/api " in line]
    assert of_api[-1] == VERSION
    assert beside(Layout(release / "images" / "api").tags[VERSION]["digest"], "sig") in of_api[:-1]


def test_a_key_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="key is no key on the curve P-256"):
        Signer(a_key(tmp_path / "key", ec.SECP384R1()))


def test_every_fault_is_one_line(release: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (release / "NOTES.md").write_text("other notes")
    monkeypatch.setattr("sys.argv", ["fairlead_release", "verify", str(release), "--key", str(release / "fairlead.pub")])
    assert main.main() == 1
    assert capsys.readouterr().err == "NOTES.md does not have the checksum in SHA256SUMS: do not use it\n"


def test_judge_and_signer_agree_on_any_content(tmp_path: Path) -> None:
    signer = Signer(a_key(tmp_path / "key"))
    (tmp_path / "pub").write_bytes(signer.public)
    judge = Judge(tmp_path / "pub")
    for length in (0, 1, 1000):
        judge.check("it", b"x" * length, signer.sign(b"x" * length))
        with pytest.raises(ValueError, match="it is not by this key"):
            judge.check("it", b"y" + b"x" * length, signer.sign(b"x" * length))

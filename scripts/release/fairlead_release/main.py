"""`python -m fairlead_release.main check|assemble|tags|verify`, which scripts/release/release.sh calls."""

import argparse
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from fairlead_release import chart as charts
from fairlead_release.contents import document, packages
from fairlead_release.layouts import Layout, as_json, digest_of
from fairlead_release.notes import must_agree, notes
from fairlead_release.provenance import BY_HAND, Origin, stated
from fairlead_release.signing import Document, Judge, Signer, attest_image, check_image, sign_image

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "helm" / "fairlead"
PROCESSES = ("operator", "api", "router", "engine")
SUMS, PROVENANCE, KEY = "SHA256SUMS", "provenance.intoto.jsonl", "fairlead.pub"
SPDX = "https://spdx.dev/Document"
_BASE = "org.opencontainers.image.base.name"


class Release:
    """The release in the folder `out`: images as OCI layouts in `images/`, and files."""

    def __init__(self, out: Path, registry: str, origin: Origin, made: int, signer: Signer) -> None:
        self._out = out
        self._registry = registry
        self._origin = origin
        self._made = made
        self._signer = signer

    def assemble(self, written: str) -> None:
        """Add chart, lists of contents, signatures, notes, provenance and checksums to the built images and files."""
        (self._out / "NOTES.md").write_text(written, encoding="utf-8")
        (self._out / KEY).write_bytes(self._signer.public)
        self._chart()
        for process in PROCESSES:
            self._image(process)
        self._receipts()

    def _chart(self) -> None:
        archive = charts.packed(CHART, self._made)
        (self._out / f"fairlead-{self._origin.version}.tgz").write_bytes(archive)
        layout = Layout(self._out / "images" / "chart")
        artifact = charts.keep(layout, CHART, archive)
        reference = f"{self._registry}/{place('chart')}"
        sign_image(layout, artifact["digest"], reference, self._signer)
        attest_image(layout, artifact["digest"], [self._origin.statement({reference: artifact["digest"]}, "")], self._signer)

    def _image(self, process: str) -> None:
        """Sign the index of a process and the image of each architecture, and attest each image's list of contents."""
        layout = Layout(self._out / "images" / process)
        reference = f"{self._registry}/{place(process)}"
        index = layout.tags[self._origin.version]["digest"]
        for architecture, one in layout.manifests(self._origin.version):
            digest = one["digest"]
            config = layout.read(layout.read(digest)["config"]["digest"])
            contents = document(
                f"fairlead-{process}-{architecture}", digest, packages(layout, one), datetime.fromtimestamp(self._made, UTC)
            )
            (self._out / f"fairlead-{process}-{architecture}.spdx.json").write_bytes(as_json(contents))
            base = config["config"].get("Labels", {}).get(_BASE, "")
            origin = self._origin.statement({reference: digest}, base)
            sign_image(layout, digest, reference, self._signer)
            attest_image(layout, digest, [origin, stated({reference: digest}, SPDX, contents)], self._signer)
        sign_image(layout, index, reference, self._signer)
        attest_image(layout, index, [self._origin.statement({reference: index}, "")], self._signer)

    def _receipts(self) -> None:
        subjects = {path.name: digest_of(path.read_bytes()) for path in files(self._out)}
        envelope = self._signer.envelope(self._origin.statement(subjects, ""))
        (self._out / PROVENANCE).write_bytes(as_json(envelope) + b"\n")
        lines = [
            f"{digest_of(path.read_bytes()).removeprefix('sha256:')}  {path.name}\n" for path in [*files(self._out), self._out / PROVENANCE]
        ]
        (self._out / SUMS).write_text("".join(lines), encoding="utf-8")
        (self._out / f"{SUMS}.sig").write_text(self._signer.sign((self._out / SUMS).read_bytes()) + "\n", encoding="utf-8")


def place(name: str) -> str:
    """Return the path below the registry for a layout of `images/`. Helm requires the chart's name as its last part."""
    return "charts/fairlead" if name == "chart" else f"fairlead/{name}"


def tags(out: Path) -> Iterator[str]:
    """Yield folder, path and tag of everything to push. Signatures and attestations of an image come before the
    image.
    """
    for folder in sorted((out / "images").iterdir()):
        for tag in sorted(Layout(folder).tags, key=lambda tag: (not tag.startswith("sha256-"), tag)):
            yield f"{folder} {place(folder.name)} {tag}"


def files(out: Path) -> list[Path]:
    """Return the files of a release, without checksums, their signature, provenance and key."""
    return [path for path in sorted(out.iterdir()) if path.is_file() and path.name not in {SUMS, f"{SUMS}.sig", PROVENANCE, KEY}]


def verify(out: Path, key: Path) -> Iterator[str]:
    """Check everything in the folder with the public key, and yield a line for each check.

    Raises ValueError for a file or image that differs from the signed one.
    """
    judge = Judge(key)
    sums = out / SUMS
    judge.check(SUMS, sums.read_bytes(), (out / f"{SUMS}.sig").read_text(encoding="utf-8").strip())
    listed = {name: digest for digest, name in (line.split("  ") for line in sums.read_text(encoding="utf-8").splitlines())}
    for path in [*files(out), out / PROVENANCE]:
        if digest_of(path.read_bytes()) != f"sha256:{listed.pop(path.name, 'none')}":
            raise ValueError(f"{path.name} does not have the checksum in {SUMS}: do not use it")
        yield f"{path.name}: as signed"
    if listed:
        raise ValueError(f"{', '.join(listed)}: listed in {SUMS}, but missing; download the release again")
    judge.statement(PROVENANCE, json.loads((out / PROVENANCE).read_text(encoding="utf-8")))
    for folder in sorted((out / "images").iterdir()):
        yield from _verified(Layout(folder), folder.name, judge)


def _verified(layout: Layout, name: str, judge: Judge) -> Iterator[str]:
    layout.check()
    tags = [tag for tag in layout.tags if not tag.startswith("sha256-")]
    for tag in tags:
        index = layout.tags[tag]["digest"]
        inner = [] if name == "chart" else [(f"{name} for {architecture}", one["digest"]) for architecture, one in layout.manifests(tag)]
        for what, digest in [(name, index), *inner]:
            kinds = [one["predicateType"] for one in check_image(layout, digest, what, judge)]
            yield f"{what} {digest[:19]}: signed, with {' and '.join(kinds)}"


def _version() -> str:
    found: Document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(found["project"]["version"])


def _checked(tag: str) -> str:
    """Return the notes of this version. Raises ValueError if a version or the tag disagrees."""
    described = charts.described(CHART)
    versions = {"pyproject.toml": _version(), "Chart.yaml version": described["version"], "Chart.yaml appVersion": described["appVersion"]}
    must_agree(tag, versions)
    return notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), _version(), bool(tag))


def _of_commit(wanted: str) -> str:
    return subprocess.run(["git", "log", "-1", f"--format={wanted}"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _assemble(arguments: argparse.Namespace) -> None:
    origin = Origin(_version(), _of_commit("%H"), arguments.source, arguments.builder)
    release = Release(arguments.out, arguments.registry, origin, int(_of_commit("%ct")), Signer(arguments.key))
    release.assemble(_checked(arguments.tag))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fairlead_release")
    commands = parser.add_subparsers(required=True)
    checking = commands.add_parser("check", help="check that tag, versions and changelog agree")
    checking.set_defaults(run=lambda arguments: _checked(arguments.tag))
    assembling = commands.add_parser("assemble", help="complete the release in OUT, which has images and wheels")
    assembling.set_defaults(run=_assemble)
    verifying = commands.add_parser("verify", help="check a release by its public key")
    verifying.set_defaults(run=lambda arguments: print(*verify(arguments.out, arguments.key), sep="\n"))
    listing = commands.add_parser("tags", help="list the images to push: layout, place below the registry, tag")
    listing.set_defaults(run=lambda arguments: print(*tags(arguments.out), sep="\n"))
    for one in (assembling, verifying, listing):
        one.add_argument("out", type=Path, help="folder of the release")
    for one in (assembling, verifying):
        one.add_argument("--key", type=Path, required=True, help="PEM file: the private key to assemble, the public one to verify")
    for one in (checking, assembling):
        one.add_argument("--tag", default="", help="tag of the release, v<version>; without this option it is a trial")
    assembling.add_argument("--registry", default="registry.example.com", help="registry and path that the images are signed for")
    assembling.add_argument("--source", default="", help="URL of the repository")
    assembling.add_argument("--builder", default=BY_HAND, help="URI of the builder, for the provenance")
    return parser.parse_args()


def main() -> int:
    """Run the command; return 0, or 1 after printing the error in a line."""
    arguments = _arguments()
    try:
        arguments.run(arguments)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

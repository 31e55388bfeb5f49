"""The packages in an image, read from its layers: those of Debian and of Python, as an SPDX 2.3 document."""

import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from fairlead_release.layouts import Descriptor, Layout

_STATUS = "var/lib/dpkg/status"
_METADATA = re.compile(r".*\.dist-info/METADATA$")


@dataclass(frozen=True, slots=True, order=True)
class Package:
    """A package. `kind` is the type of its package URL (`deb`, `pypi`), `licence` an SPDX expression; empty if none is
    stated.
    """

    kind: str
    name: str
    version: str
    licence: str = ""

    @property
    def url(self) -> str:
        """Its package URL (https://github.com/package-url/purl-spec)."""
        path = f"debian/{self.name}" if self.kind == "deb" else re.sub(r"[-_.]+", "-", self.name).lower()
        return f"pkg:{self.kind}/{path}@{self.version.replace('+', '%2B').replace(':', '%3A')}"


def packages(layout: Layout, manifest: Descriptor) -> list[Package]:
    """Return all packages of an image once. The Debian list of a later layer replaces that of an earlier one."""
    of_debian: list[Package] = []
    of_python: set[Package] = set()
    for layer in layout.read(manifest["digest"])["layers"]:
        for name, text in _lists(layout.path(layer["digest"])):
            if name == _STATUS:
                of_debian = list(_of_debian(text))
            else:
                of_python.add(_of_python(text))
    return sorted({*of_debian, *of_python})


def _lists(layer: Path) -> Iterator[tuple[str, str]]:
    with tarfile.open(layer) as archive:
        for member in archive:
            name = member.name.removeprefix("./").removeprefix("/")
            if member.isfile() and (name == _STATUS or _METADATA.match(name)) and (content := archive.extractfile(member)):
                yield name, content.read().decode(errors="replace")


def _of_debian(status: str) -> Iterator[Package]:
    for paragraph in status.split("\n\n"):
        fields = HeaderParser().parsestr(paragraph)
        if str(fields.get("Status", "")).endswith(" installed"):
            yield Package("deb", fields["Package"], fields["Version"])


def _of_python(metadata: str) -> Package:
    fields = HeaderParser().parsestr(metadata)
    return Package("pypi", fields["Name"], fields["Version"], str(fields.get("License-Expression", "")))


def document(name: str, digest: str, found: Iterable[Package], made: datetime) -> dict[str, Any]:
    """Return the SPDX document of the image `name` with this digest; `made` is its commit's time."""
    listed = [_described(number, one) for number, one in enumerate(found, 1)]
    image = {"SPDXID": "SPDXRef-image", "name": name, "versionInfo": digest, "primaryPackagePurpose": "CONTAINER", **_UNKNOWN}
    contains = [{"spdxElementId": "SPDXRef-image", "relationshipType": "CONTAINS", "relatedSpdxElement": one["SPDXID"]} for one in listed]
    describes = {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-image"}
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"https://fairlead.dev/spdx/{name}/{digest.removeprefix('sha256:')}",
        "creationInfo": {"created": f"{made.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}", "creators": ["Tool: fairlead-release"]},
        "packages": [image, *listed],
        "relationships": [describes, *contains],
    }


_UNKNOWN = {"downloadLocation": "NOASSERTION", "filesAnalyzed": False}


def _described(number: int, package: Package) -> dict[str, Any]:
    reference = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": package.url}
    licence = {"licenseDeclared": package.licence} if package.licence else {}
    name = {"SPDXID": f"SPDXRef-package-{number}", "name": package.name, "versionInfo": package.version}
    return {**name, **_UNKNOWN, **licence, "externalRefs": [reference]}

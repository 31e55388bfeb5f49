#!/usr/bin/env python3
"""Packs a wheel of Fairlead as a plugin for krew: `krew_plugin.py WHEEL OUT URI HOMEPAGE`.

OUT gets `kubectl-fairlead.tar.gz`, which has to be served at URI, and the manifest `fairlead.yaml` with its checksum.
"""

import hashlib
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
KREW = ROOT / "cli" / "krew"
ARCHIVE = "kubectl-fairlead.tar.gz"


def pack(wheel: Path, out: Path, uri: str, homepage: str) -> None:
    """Write archive and manifest into the folder `out`."""
    out.mkdir(parents=True, exist_ok=True)
    with tarfile.open(out / ARCHIVE, "w:gz") as archive:
        for path in (KREW / "kubectl-fairlead", wheel, ROOT / "LICENSE"):
            archive.add(path, path.name, filter=_nobodys)
    told = {
        "VERSION": wheel.name.split("-")[1],
        "HOMEPAGE": homepage,
        "URI": uri,
        "SHA256": hashlib.sha256((out / ARCHIVE).read_bytes()).hexdigest(),
    }
    manifest = (KREW / "fairlead.yaml").read_text(encoding="utf-8")
    for name, value in told.items():
        manifest = manifest.replace(f" v{name}" if name == "VERSION" else f" {name}", f" v{value}" if name == "VERSION" else f" {value}")
    (out / "fairlead.yaml").write_text(manifest, encoding="utf-8")


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit("krew_plugin.py: write WHEEL OUT URI HOMEPAGE")
    pack(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4])

"""The chart as Helm packs it, and as the OCI artifact from which `helm install oci://…` installs.

Source: https://helm.sh/docs/topics/registries/.
"""

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import yaml

from fairlead_release.layouts import Descriptor, Layout, as_json

_CONFIG = "application/vnd.cncf.helm.config.v1+json"
_CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


def described(chart: Path) -> dict[str, Any]:
    """Return the content of the chart's Chart.yaml."""
    found: dict[str, Any] = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    return found


def packed(chart: Path, made: int) -> bytes:
    """Return the chart as `.tgz`. All files get the time `made` (seconds since 1970), so that equal charts give equal
    bytes.
    """
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for path in sorted(one for one in chart.rglob("*") if one.is_file()):
            member = tarfile.TarInfo(f"{chart.name}/{path.relative_to(chart)}")
            member.size, member.mtime, member.mode = path.stat().st_size, made, 0o644
            with path.open("rb") as content:
                archive.addfile(member, content)
    return gzip.compress(plain.getvalue(), mtime=made)


def keep(layout: Layout, chart: Path, archive: bytes) -> Descriptor:
    """Store the packed chart in the layout as an artifact, tagged with its version."""
    found = described(chart)
    config = layout.add(as_json(found), _CONFIG)
    title = {"org.opencontainers.image.title": found["name"], "org.opencontainers.image.version": found["version"]}
    return layout.tag(found["version"], config, [layout.add(archive, _CONTENT)], title)

"""OCI image layouts: a folder of blobs by digest, with an index that names what is tagged.

Source: https://github.com/opencontainers/image-spec/blob/main/image-layout.md.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
TAG = "org.opencontainers.image.ref.name"

Descriptor = dict[str, Any]
"""A blob's `mediaType`, `digest` and `size`, with `annotations` where it has some."""


class Layout:
    """The layout in `folder`, made where there is none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
        if not self._index.exists():
            (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}', encoding="utf-8")
            self._write([])

    @property
    def _index(self) -> Path:
        return self._folder / "index.json"

    @property
    def tags(self) -> dict[str, Descriptor]:
        """Tag → what it names."""
        return {one["annotations"][TAG]: one for one in json.loads(self._index.read_text(encoding="utf-8"))["manifests"]}

    def path(self, digest: str) -> Path:
        """The blob's file."""
        return self._folder / "blobs" / digest.replace(":", "/")

    def read(self, digest: str) -> Any:
        """The JSON document in a blob."""
        return json.loads(self.path(digest).read_bytes())

    def check(self) -> None:
        """Raises ValueError for a blob whose content its digest does not name."""
        for path in sorted((self._folder / "blobs" / "sha256").iterdir()):
            with path.open("rb") as content:
                if hashlib.file_digest(content, "sha256").hexdigest() != path.name:
                    raise ValueError(f"{path} is not what its name says: it was changed; do not use it")

    def add(self, content: bytes, media_type: str, annotations: Mapping[str, str] | None = None) -> Descriptor:
        """Keep a blob."""
        descriptor: Descriptor = {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}
        self.path(descriptor["digest"]).write_bytes(content)
        return descriptor | ({"annotations": dict(annotations)} if annotations else {})

    def tag(self, tag: str, config: Descriptor, layers: Sequence[Descriptor], annotations: Mapping[str, str] | None = None) -> Descriptor:
        """Keep a manifest of these blobs under `tag`, in place of what had it."""
        manifest: dict[str, Any] = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": list(layers)}
        found = self.add(as_json(manifest | ({"annotations": dict(annotations)} if annotations else {})), MANIFEST)
        others = [one for name, one in self.tags.items() if name != tag]
        self._write([*others, found | {"annotations": {TAG: tag}}])
        return found

    def manifests(self, tag: str) -> Iterator[tuple[str, Descriptor]]:
        """Architecture and manifest of each image under `tag`, which is an index of images."""
        for one in self.read(self.tags[tag]["digest"])["manifests"]:
            yield one["platform"]["architecture"], one

    def _write(self, manifests: list[Descriptor]) -> None:
        self._index.write_bytes(as_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}))


def digest_of(content: bytes) -> str:
    """The name of a blob."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def as_json(document: Any) -> bytes:
    """The same document as the same bytes, always."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

"""OCI image layouts: a folder of blobs by digest, with an index of the tagged ones.

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
"""A blob's `mediaType`, `digest` and `size`, and `annotations` if it has some."""


class Layout:
    """The layout in `folder`; it is made if there is none."""

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
        """The descriptor of the manifest or index that each tag names, by tag."""
        return {one["annotations"][TAG]: one for one in json.loads(self._index.read_text(encoding="utf-8"))["manifests"]}

    def path(self, digest: str) -> Path:
        """Return the blob's file."""
        return self._folder / "blobs" / digest.replace(":", "/")

    def read(self, digest: str) -> Any:
        """Return the JSON document in a blob."""
        return json.loads(self.path(digest).read_bytes())

    def check(self) -> None:
        """Raise ValueError for a blob whose content does not have its digest."""
        for path in sorted((self._folder / "blobs" / "sha256").iterdir()):
            with path.open("rb") as content:
                if hashlib.file_digest(content, "sha256").hexdigest() != path.name:
                    raise ValueError(f"{path} does not have the digest in its name: it was changed; do not use it")

    def add(self, content: bytes, media_type: str, annotations: Mapping[str, str] | None = None) -> Descriptor:
        """Store a blob and return its descriptor."""
        descriptor: Descriptor = {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}
        self.path(descriptor["digest"]).write_bytes(content)
        return descriptor | ({"annotations": dict(annotations)} if annotations else {})

    def tag(self, tag: str, config: Descriptor, layers: Sequence[Descriptor], annotations: Mapping[str, str] | None = None) -> Descriptor:
        """Store a manifest of these blobs under `tag`, replacing the manifest that had the tag."""
        manifest: dict[str, Any] = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": list(layers)}
        found = self.add(as_json(manifest | ({"annotations": dict(annotations)} if annotations else {})), MANIFEST)
        others = [one for name, one in self.tags.items() if name != tag]
        self._write([*others, found | {"annotations": {TAG: tag}}])
        return found

    def manifests(self, tag: str) -> Iterator[tuple[str, Descriptor]]:
        """Yield architecture and manifest of each image in the index of images that `tag` names."""
        for one in self.read(self.tags[tag]["digest"])["manifests"]:
            yield one["platform"]["architecture"], one

    def _write(self, manifests: list[Descriptor]) -> None:
        self._index.write_bytes(as_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}))


def digest_of(content: bytes) -> str:
    """Return the digest of a blob, which is its name."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def as_json(document: Any) -> bytes:
    """Return the document as JSON; equal documents give equal bytes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

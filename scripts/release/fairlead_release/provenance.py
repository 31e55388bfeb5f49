"""Statements about a release: its provenance, and the contents of an image.

Source: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md and https://slsa.dev/spec/v1.0/provenance.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlead_release.signing import Document

BUILD = "https://fairlead.dev/release/v1"
BY_HAND = "https://fairlead.dev/release/by-hand"


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a release. `source` is the repository's URL; empty if it is not given.

    `builder` is the URI of the person or service that runs the steps.
    """

    version: str
    commit: str
    source: str = ""
    builder: str = BY_HAND

    def statement(self, subjects: Mapping[str, str], base: str) -> Document:
        """Return the statement that `subjects` (name → SHA-256) were built from this commit, on the image `base` if it
        is not empty.
        """
        of = [{"uri": f"git+{self.source}" if self.source else "git+https://fairlead.dev", "digest": {"gitCommit": self.commit}}]
        on = [{"uri": base}] if base else []
        parameters = {"version": self.version, "source": self.source}
        predicate: dict[str, Any] = {
            "buildDefinition": {"buildType": BUILD, "externalParameters": parameters, "resolvedDependencies": [*of, *on]},
            "runDetails": {"builder": {"id": self.builder}},
        }
        return stated(subjects, "https://slsa.dev/provenance/v1", predicate)


def stated(subjects: Mapping[str, str], kind: str, predicate: Document) -> Document:
    """Return an in-toto statement."""
    named = [{"name": name, "digest": {"sha256": digest.removeprefix("sha256:")}} for name, digest in sorted(subjects.items())]
    return {"_type": "https://in-toto.io/Statement/v1", "subject": named, "predicateType": kind, "predicate": predicate}

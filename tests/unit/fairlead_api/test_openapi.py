"""docs/openapi.json equals the document of the code, and a small change of the API causes a small diff."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead_api.openapi import document

STORED = Path(__file__).parents[3] / "docs" / "openapi.json"


@pytest.fixture(scope="module")
def stored() -> str:
    return STORED.read_text(encoding="utf-8")


def test_the_stored_document_is_current(stored: str) -> None:
    assert stored == document(), "run: python -m fairlead_api.openapi docs/openapi.json"


def test_every_operation_and_every_schema_is_a_line(stored: str) -> None:
    found: dict[str, Any] = json.loads(stored)
    lines = {line.strip().rstrip(",") for line in stored.splitlines()}
    parts = [operation for path in found["paths"].values() for operation in path.items()]
    parts += [part for kind in found["components"].values() for part in kind.items()]
    assert len(parts) > 300
    assert [name for name, part in parts if f"{json.dumps(name)}: {json.dumps(part, ensure_ascii=False)}" not in lines] == []


def test_every_reference_resolves(stored: str) -> None:
    wanted = {part.split('"')[0] for part in stored.split("#/components/schemas/")[1:]}
    assert wanted <= json.loads(stored)["components"]["schemas"].keys()

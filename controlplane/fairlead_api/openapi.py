"""Writes the OpenAPI document: `python -m fairlead_api.openapi docs/openapi.json`. It needs no database."""

import json
import sys
from pathlib import Path
from typing import Any

from fairlead_api.app import create_api
from fairlead_api.http.documenting import openapi
from fairlead_api.settings import Settings

_LINES = {"paths": 2, "components": 2}
"""The top-level parts of the document in which each member gets its own line, by name. The number says how many nested
levels are split into lines, so that each operation and each schema is one line.
"""


def document() -> str:
    """Return the OpenAPI document as text in which a small change is a small diff. Keys keep their order."""
    api = create_api(Settings(database_url="postgresql+psycopg://nobody@localhost/none"))
    members = (f" {json.dumps(name)}: {_opened(value, _LINES.get(name, 0), 1)}" for name, value in openapi(api).items())
    return "{\n" + ",\n".join(members) + "\n}\n"


def _opened(value: Any, levels: int, depth: int) -> str:
    """Return the value as JSON. In its first `levels` levels, each member of an object has its own line."""
    if levels == 0 or not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    indent = " " * (depth + 1)
    members = (f"{indent}{json.dumps(name)}: {_opened(one, levels - 1, depth + 1)}" for name, one in value.items())
    return "{\n" + ",\n".join(members) + "\n" + " " * depth + "}"


def main() -> None:
    """Write the OpenAPI document to the given path, or to standard output."""
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(document(), encoding="utf-8")
    else:
        sys.stdout.write(document())


if __name__ == "__main__":
    main()

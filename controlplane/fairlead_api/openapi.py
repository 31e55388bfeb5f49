"""Writes the OpenAPI document: `python -m fairlead_api.openapi docs/openapi.json`. It needs no database."""

import json
import sys
from pathlib import Path

from fairlead_api.app import create_api
from fairlead_api.http.documenting import openapi
from fairlead_api.settings import Settings


def document() -> str:
    """The document as it is stored: keys in the order they were written, indented by two spaces."""
    api = create_api(Settings(database_url="postgresql+psycopg://nobody@localhost/none"))
    return json.dumps(openapi(api), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Writes to the path given, or to standard output."""
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(document(), encoding="utf-8")
    else:
        sys.stdout.write(document())


if __name__ == "__main__":
    main()

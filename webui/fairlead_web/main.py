"""`python -m fairlead_web.main`: the web UI in a process of its own, in front of a control API reached over the network.

Environment: FAIRLEAD_API_URL (required), FAIRLEAD_PUBLIC_URL (default: the address it listens on).
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp

from fairlead.errors import InvalidInput
from fairlead_web.app import create_web_app


def build(environment: Mapping[str, str], host: str, port: int) -> ASGIApp:
    """The app from its environment. Raises InvalidInput naming the variable that is missing or wrong."""
    api_url = environment.get("FAIRLEAD_API_URL", "")
    if urlsplit(api_url).scheme not in {"http", "https"} or not urlsplit(api_url).netloc:
        raise InvalidInput("FAIRLEAD_API_URL", api_url, "write the control API's address, such as http://127.0.0.1:8080")
    return create_web_app(None, api_url, environment.get("FAIRLEAD_PUBLIC_URL") or f"http://{host}:{port}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until stopped. Exit code 2 for bad settings."""
    parser = argparse.ArgumentParser(prog="python -m fairlead_web.main", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8090, help="port to listen on (default 8090)")
    options = parser.parse_args(arguments)
    try:
        app = build(os.environ, options.host, options.port)
    except InvalidInput as error:
        print(f"fairlead web: {error}", file=sys.stderr)
        return 2
    uvicorn.run(app, host=options.host, port=options.port, log_level="info", timeout_graceful_shutdown=2)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

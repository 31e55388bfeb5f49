"""A receiver of Fairlead's notices that verifies each before it believes it. Python's standard library is enough.

NOTICE_SECRET=whsec_… python receiver.py 8900
"""

import base64
import hashlib
import hmac
import json
import os
import sys
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOLERANCE_SECONDS = 300
"""How old an attempt may be: a recorded one cannot be played again later."""


def verified(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """Whether the notice was sent by somebody who knows the secret, and a short time ago."""
    notice, seconds = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not seconds.isdecimal() or abs(now - int(seconds)) > TOLERANCE_SECONDS:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.new(key, f"{notice}.{seconds}.".encode() + body, hashlib.sha256).digest())
    signatures = headers.get("webhook-signature", "").split()
    return any(hmac.compare_digest(b"v1," + expected, one.encode()) for one in signatures)


def handle(notice: Mapping[str, Any]) -> None:
    """What to do with a notice; it is called once for each id, as long as the process lives."""
    print(notice["timestamp"], notice["type"], notice["data"]["words"], flush=True)


class Receiver(BaseHTTPRequestHandler):
    known: set[str] = set()  # noqa: RUF012 - one for all requests; a real receiver keeps it in its database

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if not verified(os.environ["NOTICE_SECRET"], headers, body, time.time()):
            self.send_response_only(401)
        else:
            if headers["webhook-id"] not in self.known:
                handle(json.loads(body))
                self.known.add(headers["webhook-id"])
            self.send_response_only(204)
        self.send_header("content-length", "0")
        self.end_headers()


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()

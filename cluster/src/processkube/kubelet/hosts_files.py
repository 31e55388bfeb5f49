"""The files in which pods find the addresses of Services: one file in the form of /etc/hosts for each namespace.

The kubelet shows the file to its pods as their /etc/hosts; the service proxy, which knows the Services, rewrites it.
"""

import os
from pathlib import Path

BEGINNING = "127.0.0.1 localhost\n"


def hosts_file(state_dir: Path, namespace: str) -> Path:
    """Return the file of a namespace, which is made if necessary."""
    path = state_dir / "hosts" / namespace
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        rewrite(path, BEGINNING)
    return path


def rewrite(path: Path, text: str) -> None:
    """Replace the contents in place, because pods have this very file mounted. A reader sees the old or the new text.

    Blank lines replace the rest of a longer old text until the file is cut.
    """
    content = text.encode()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        before = os.fstat(descriptor).st_size
        os.pwrite(descriptor, content.ljust(before, b"\n"), 0)
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)

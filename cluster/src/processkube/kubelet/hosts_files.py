"""The hosts files with which pods resolve the names of Services: one file in the format of /etc/hosts for each
namespace.

The kubelet mounts the file in enclosed containers as /etc/hosts. The service proxy, which knows the Services, rewrites
the file.
"""

import os
from pathlib import Path

BEGINNING = "127.0.0.1 localhost\n"


def hosts_file(state_dir: Path, namespace: str) -> Path:
    """Return the path of a namespace's hosts file, which is created if necessary."""
    path = state_dir / "hosts" / namespace
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        rewrite(path, BEGINNING)
    return path


def rewrite(path: Path, text: str) -> None:
    """Replace the file's content without replacing the file, because containers have this very file mounted. A reader
    sees either the old or the new text.

    If the old text is longer, blank lines overwrite its end before the file is truncated.
    """
    content = text.encode()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        before = os.fstat(descriptor).st_size
        os.pwrite(descriptor, content.ljust(before, b"\n"), 0)
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)

"""Finds the processes of one sandbox by their mark.

The mark is an environment variable that every process of a sandbox inherits, so that stray processes are found even if
their pids were never recorded. Linux only (`/proc`).
"""

import os
from pathlib import Path

from processkube.identities import ProcessIdentity, identity_of

MARK = "FAIRLEAD_SANDBOX_STATE_DIR"
"""Environment variable of every process of a sandbox; its value is the absolute path of the state directory."""


def marked_processes(state_dir: Path) -> list[ProcessIdentity]:
    """Return every live process whose environment carries the mark of this state directory, except the caller."""
    wanted = f"{MARK}={state_dir}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue  # has ended meanwhile, or belongs to another user
        if wanted in environment.split(b"\0"):
            identity = identity_of(int(entry.name))
            if identity is not None:
                found.append(identity)
    return found

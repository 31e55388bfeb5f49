"""Makes command lines that run a command in a container's own namespaces (`enclosure`)."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from processkube.kubelet import enclosure

_ENCLOSURE = str(Path(enclosure.__file__))
_CHECKOUT = Path(enclosure.__file__).parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMount:
    """A mount: the folder or file `source` of the machine appears at `path` in the container."""

    source: Path
    path: str
    read_only: bool


def can_enclose(python: str = sys.executable) -> bool:
    """Return whether this machine allows a process to make its own user and mount namespaces."""
    return subprocess.run([python, "-I", "-S", _ENCLOSURE, "{}"], capture_output=True, check=False).returncode == 0


def enclosing(
    *,
    python: str,
    user: int,
    group: int,
    hostname: str,
    read_only: bool,
    stage: Path,
    folder: str,
    mounts: Sequence[FileMount],
) -> tuple[str, ...]:
    """Return the beginning of a command line. A command appended to it runs in new namespaces with these settings. The
    files of the kubelet's Python installation stay visible there.
    """
    plan = {
        "user": user,
        "group": group,
        "hostname": hostname[:63],
        "read_only": read_only,
        "stage": str(stage),
        "folder": folder,
        "mounts": [(str(mount.source), mount.path, mount.read_only) for mount in mounts],
        "kept": _installation(),
    }
    return (python, "-I", "-S", _ENCLOSURE, json.dumps(plan))


def _installation() -> list[str]:
    """Return the folders with the files of this Python installation. If the package runs from a checkout of the
    repository, the whole checkout is among them, because the migrations are outside of the packages.
    """
    checkout = {str(_CHECKOUT)} if (_CHECKOUT / "pyproject.toml").exists() else set()
    return sorted(checkout | {sys.prefix, sys.base_prefix, *(path for path in sys.path if Path(path).is_dir())})


def joining(*, python: str, pid: int, folder: str) -> tuple[str, ...]:
    """Return the beginning of a command line. A command appended to it runs in the namespaces of the process `pid`,
    which was started by `enclosing`.
    """
    return (python, "-I", "-S", _ENCLOSURE, json.dumps({"join": pid, "folder": folder}))

"""The files of a sandbox: paths in the state directory, its lock, and `run.json`, the note about the current run."""

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fairlead_sandbox.errors import SandboxError

POSTGRES_UID = 65534
"""Uid of `nobody` on every Linux; Postgres runs as this user if the sandbox is started by root."""

SOCKET_PATH_LIMIT = 90
"""Maximum number of bytes of the path of Postgres' socket together with the name of its lock file.

The kernel allows 107 bytes for the path of a socket.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDirectory:
    """One sandbox's directory; `root` is absolute."""

    root: Path

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def kubernetes(self) -> Path:
        """The folder with the state of the Kubernetes API and the kubelet; the pods' logs are in its folder `logs`."""
        return self.root / "kubernetes"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def postgres_data(self) -> Path:
        return self.root / "postgres"

    @property
    def spool(self) -> Path:
        return self.root / "spool"

    @property
    def routers(self) -> Path:
        return self.root / "routers"

    @property
    def secrets(self) -> Path:
        return self.root / "tokens"

    @property
    def chart_mark(self) -> Path:
        """A file that exists if the directory belongs to `fairlead up --chart`."""
        return self.root / "chart"

    @property
    def run_file(self) -> Path:
        return self.root / "run.json"

    @property
    def lock_file(self) -> Path:
        return self.root / "lock"

    @property
    def socket_directory(self) -> Path:
        """The folder of Postgres' socket: in the state directory, or else a short private folder.

        The private folder is used if the path in the state directory would be too long, or has a comma, which Postgres
        and its clients would read as a list of paths.
        """
        own = self.root / "run"
        if len(os.fsencode(own / ".s.PGSQL.5432.lock")) <= SOCKET_PATH_LIMIT and "," not in str(own):
            return own
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"fairlead-{os.getuid()}-{digest}"

    def create(self) -> None:
        """Make the directories, readable by their owner only. Raises SandboxError when that is not possible."""
        try:
            is_new = not self.root.exists() or not any(self.root.iterdir())
            for folder in (self.root, self.logs, self.kubernetes, self.spool, self.socket_directory):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_new:  # tokens and the database belong in no commit of a checkout; a folder of yours keeps its own rules
                (self.root / ".gitignore").write_text("*\n")
        except OSError as problem:
            raise SandboxError(
                f"--state-dir {self.root}: cannot be created ({problem.strerror}); choose a directory you may write"
            ) from None
        if self.socket_directory.stat().st_uid not in self._socket_owners():
            raise SandboxError(f"{self.socket_directory} belongs to another user; choose a shorter --state-dir without a comma")

    def _socket_owners(self) -> set[int]:
        """Return the uids that may own the socket's folder. The current user's uid may own it. If root runs the sandbox
        and the folder lies in the state directory, the uid of Postgres may own it too. Elsewhere it may not, because
        everybody may write in the place of such a folder.
        """
        is_of_root = os.geteuid() == 0 and self.socket_directory.parent == self.root
        return {os.getuid(), POSTGRES_UID} if is_of_root else {os.getuid()}

    def claim_for_chart(self) -> None:
        """Mark the directory as one that runs the chart. Raises SandboxError for a directory that has been used without
        the chart.
        """
        if self.chart_mark.exists():
            return
        if self.secrets.exists():
            raise SandboxError(f"--chart: {self.root} was started without it; leave --chart out, or choose another --state-dir")
        write_private(self.chart_mark, "")

    def refuse_chart(self) -> None:
        """Raise SandboxError for a directory that runs the chart: two operators would fight over its pods."""
        if self.chart_mark.exists():
            raise SandboxError(f"--chart: {self.root} was started with it; use --chart again, or choose another --state-dir")

    def lock(self) -> "Lock | None":
        """Hold the directory until this process ends; None when another supervisor holds it."""
        descriptor = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return Lock(descriptor)

    def is_locked(self) -> bool:
        """Return whether a supervisor runs on this directory now."""
        if not self.lock_file.exists():
            return False
        lock = self.lock()
        if lock is None:
            return True
        lock.release()
        return False

    def read_run(self) -> "RunNote | None":
        """Read the note about the current or last run; None if there is none or it is invalid."""
        try:
            document = json.loads(self.run_file.read_text(encoding="utf-8"))
            return RunNote.from_document(document)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write_run(self, note: "RunNote") -> None:
        """Replace the note in one step, so that a reader never sees half of it."""
        write_private(self.run_file, json.dumps(asdict(note), indent=1) + "\n")


class Lock:
    """A held lock; the kernel releases it when the process ends, for whatever reason."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.close(self._descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessNote:
    """One process, in the state that the supervisor saw last.

    `state` is waiting, starting, ready, backing-off, stopping, stopped or done.
    """

    name: str
    state: str = "waiting"
    pid: int | None = None
    started_ticks: int | None = None
    restarts: int = 0
    detail: str = ""
    probe: str | None = None
    """An HTTP URL that returns a status from 200 to 399 while the process is ready.

    None if only the supervisor knows whether it is ready.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNote:
    """A run of the sandbox. `phase` is starting, ready, stopping, stopped or failed. `urls` and `ports` have URLs and
    ports by name.
    """

    phase: str
    supervisor_pid: int | None = None
    supervisor_started_ticks: int | None = None
    ports: dict[str, int] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)
    processes: tuple[ProcessNote, ...] = ()
    summary: str = ""
    problem: str = ""

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> "RunNote":
        """Decode `run.json`. Raises TypeError or KeyError for an unknown format."""
        note = RunNote(**{**document, "processes": ()})
        return replace(note, processes=tuple(ProcessNote(**entry) for entry in document["processes"]))


def api_urls(urls: Mapping[str, str]) -> tuple[str, ...]:
    """Return the control API's URLs from the URLs of a run, in order."""
    return tuple(urls[name] for name in sorted(urls) if name == "api" or name.startswith("api-"))


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read; it replaces the old one in one step."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp makes it 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise

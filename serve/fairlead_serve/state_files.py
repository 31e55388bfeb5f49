"""The files of `fairlead serve`: the pool's file, the marks that people set on pages, and the source's memory.

Each file is replaced in one step, so that a reader never sees half of it. Writers of the pool's file and of the marks
hold a lock. A file that the user gave is only read.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead_sandbox.state_directory import write_private
from fairlead_serve.engine_states import ServedEngine
from fairlead_serve.pool_files import PoolFile, parse_pool_file

HEADER = "# The pool of `fairlead serve`. Edit it, or change the pool on its page; docs/serve.md has every field.\n"

Document = TypeVar("Document")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Annotations that plans set on the pool and on its engines. `written` is the digest of the pool's file after the
    last plan that wrote it. If the file has another digest now, a person has changed it since.
    """

    pool: dict[str, str] = field(default_factory=dict)
    engines: dict[str, dict[str, str]] = field(default_factory=dict)
    written: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The data that the source needs after a restart: its pool's identity, model and engine type, and the state of each
    engine.

    `spec_digest`: the digest of the spec at `generation`.
    `version`: grows with every reported state.
    """

    name: str
    uid: str
    model: str
    engine_type: str = "vllm"
    generation: int = 0
    spec_digest: str = ""
    version: int = 0
    engines: tuple[ServedEngine, ...] = ()
    conditions: tuple[dict[str, Any], ...] = ()

    @property
    def divides(self) -> bool:
        """Whether some engines of the pool prefill for others."""
        return any(engine.role is not Role.BOTH for engine in self.engines)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFiles:
    """The files of one state directory. `pool_file` is Fairlead's own if it lies in the directory."""

    root: Path
    pool_file: Path

    @property
    def is_ours(self) -> bool:
        """Whether changes made on pages are written into the pool's file."""
        return self.pool_file == own_pool_file(self.root)

    def content(self) -> str:
        """Return the pool's file as text. Raises InvalidInput when it cannot be read."""
        try:
            return self.pool_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
            raise InvalidInput("--config", str(self.pool_file), f"write a file that can be read ({why})") from None

    def read_pool(self, policies: PolicyCatalogue) -> PoolFile:
        """Read and parse the pool's file. Raises InvalidInput."""
        return parse_pool_file(self.content(), policies)

    def write_pool(self, document: Mapping[str, Any]) -> str:
        """Replace Fairlead's own pool file; return its new content."""
        content = HEADER + yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True)
        write_private(self.pool_file, content)
        return content

    def read_marks(self) -> Marks:
        return _read(self.root / "marks.json", Marks) or Marks()

    def write_marks(self, marks: Marks) -> None:
        _write(self.root / "marks.json", marks)

    def read_memory(self) -> Memory | None:
        return _read(self.root / "source.json", Memory)

    def forget_memory(self) -> None:
        """Delete the source's memory, so that the next run starts a new pool."""
        (self.root / "source.json").unlink(missing_ok=True)

    def write_memory(self, memory: Memory) -> None:
        _write(self.root / "source.json", memory)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold a lock until the block ends, so that no other process writes the pool's file or the marks."""
        descriptor = os.open(self.root / "files.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def own_pool_file(root: Path) -> Path:
    """Return the path of Fairlead's own pool file, which is used if the user gave no file."""
    return root / "pool.yaml"


def _read(path: Path, of: type[Document]) -> Document | None:
    """Read a document; None if the file is missing or invalid, so that the source makes a new one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=of)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def _write(path: Path, document: object) -> None:
    write_private(path, msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n")

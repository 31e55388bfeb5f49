"""The state with which a restarted kubelet takes over running pods: one JSON file, always replaced as a whole."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from processkube.kubelet.addresses import FIRST_NODE
from processkube.kubelet.container_states import PodState
from processkube.private_files import write_private


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Pods by uid, the number of the node's address range, and the position in that range."""

    address_node: int = FIRST_NODE
    address_position: int = 0
    pods: dict[str, PodState] = field(default_factory=dict)


def load(path: Path) -> Memory:
    """Read the memory of the last kubelet; an empty memory if the file is missing or damaged.

    With an empty memory, processes of earlier pods are found by their mark.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Memory)
    except (OSError, msgspec.MsgspecError):
        return Memory()


def save(path: Path, memory: Memory) -> None:
    """Replace the file with this memory."""
    write_private(path, msgspec.json.encode(memory))

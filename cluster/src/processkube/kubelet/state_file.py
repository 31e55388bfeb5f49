"""The saved state from which a restarted kubelet takes over running pods: one JSON file, which is always replaced as a
whole.
"""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from processkube.kubelet.addresses import FIRST_NODE
from processkube.kubelet.container_states import PodState
from processkube.private_files import write_private


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The saved state: pods by uid, the number N of the node's address range, and the position in this range."""

    address_node: int = FIRST_NODE
    address_position: int = 0
    pods: dict[str, PodState] = field(default_factory=dict)


def load(path: Path) -> Memory:
    """Return the state that the previous kubelet saved; an empty state if the file is missing or damaged.

    With an empty state, the kubelet does not know the processes of earlier pods, and starts their containers again.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Memory)
    except (OSError, msgspec.MsgspecError):
        return Memory()


def save(path: Path, memory: Memory) -> None:
    """Replace the file with this state."""
    write_private(path, msgspec.json.encode(memory))

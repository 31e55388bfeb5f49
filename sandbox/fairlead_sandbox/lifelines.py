"""Child processes that end with their parent, even if it gets SIGKILL (Linux' parent-death signal)."""

import ctypes
import os
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1


def die_with_parent(number: int) -> Callable[[], None] | None:
    """Return a `preexec_fn` that makes the kernel send signal `number` to the child when the thread that forked it
    ends. None if the kernel has no parent-death signal.

    Fork from the main thread only. The end of any other thread would end the children that it forked.
    """
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)  # loaded before the fork: loading is not safe after it
    parent = os.getpid()

    def ask() -> None:
        library.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # the parent died between fork and prctl
            os._exit(1)

    return ask

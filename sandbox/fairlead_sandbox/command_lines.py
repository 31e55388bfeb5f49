"""Commands that messages suggest to the user."""

import os
import shlex
from pathlib import Path

STATE_DIR = ".fairlead"
STATE_DIR_VARIABLE = "FAIRLEAD_STATE_DIR"


def command_line(name: str, root: Path) -> str:
    """Return the command line `fairlead NAME` for the sandbox in `root`. The option --state-dir is left out if `root`
    is the default in the current folder.
    """
    if root == Path(os.environ.get(STATE_DIR_VARIABLE) or STATE_DIR).absolute():
        return f"fairlead {name}"
    return f"fairlead {name} --state-dir {shlex.quote(str(root))}"

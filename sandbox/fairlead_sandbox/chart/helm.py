"""Helm 4 as a library, in a separate process: `python -m fairlead_sandbox.chart.helm`, with a request on standard
input.

The request is JSON: `{"kubeconfig", "namespace", "release", "chart", "values"}`. The release is installed, or upgraded
if it exists, and the process ends without waiting for its pods. Helm's error is one line on standard error. The
separate process is needed because the library is written in Go, whose runtime does not work in a process that forks.
"""

import asyncio
import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from fairlead_sandbox.errors import SandboxError

_LIBRARY = "helm_sdkpy"
_HERE = Path(__file__).resolve()
_OF_CHECKOUT = _HERE.parents[3] / ".venv-tools" / "helm"


def library_folders() -> tuple[str, ...]:
    """Return the folders that must be on the path for Helm's library; empty if the library is installed together with
    Fairlead.

    Raises SandboxError if the library is not installed.
    """
    if importlib.util.find_spec(_LIBRARY) is not None:
        return ()
    if (_OF_CHECKOUT / _LIBRARY).is_dir():
        return (str(_OF_CHECKOUT),)
    raise SandboxError(
        "--chart needs Helm's library, which is not installed: in a checkout run scripts/ensure-helm.sh, elsewhere "
        "`pip install helm-sdkpy` (Linux on x86-64, Python 3.12 or newer)"
    )


def chart_folder() -> Path:
    """Return the chart's folder: in the package or, if it is not there, in the checkout. Raises SandboxError if neither
    has the chart.
    """
    for folder in (_HERE.parents[1] / "helm" / "fairlead", _HERE.parents[3] / "helm" / "fairlead"):
        if (folder / "Chart.yaml").is_file():
            return folder
    raise SandboxError("--chart needs the chart, which this installation lacks; reinstall Fairlead")


async def install_or_upgrade(request: dict[str, Any]) -> str:
    """Install or upgrade the release; return one word for the action. Raises SandboxError with Helm's message."""
    library = importlib.import_module(_LIBRARY)
    configuration = library.Configuration(namespace=request["namespace"], kubeconfig=request["kubeconfig"])
    try:
        known = await library.List(configuration).run(all=True) or []
        if any(one["name"] == request["release"] for one in known):
            await library.Upgrade(configuration).run(request["release"], request["chart"], values=request["values"], wait=False)
            return "upgraded"
        await library.Install(configuration).run(
            request["release"], request["chart"], values=request["values"], wait=False, create_namespace=True
        )
    except library.HelmError as problem:
        raise SandboxError(f"Helm: {' '.join(str(problem).split())}") from None
    return "installed"


if __name__ == "__main__":
    sys.path.extend(library_folders())
    try:
        print(asyncio.run(install_or_upgrade(json.load(sys.stdin))))
    except SandboxError as refusal:
        sys.exit(str(refusal))

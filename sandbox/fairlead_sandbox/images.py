"""The images of the chart and of its pods for processkube's kubelet: the programs of the installed package, as in
images/Dockerfile, and an equivalent of Docker Hub's `postgres`.
"""

import signal

from fairlead_sandbox.postgres import find_binaries
from processkube.kubelet.images import Catalogue, Image

_EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - what manifests say
_USER = ("fairlead", 10001)
_PYTHON = ("{python}", "-P")
_PROCESS = {"fairlead": (*_PYTHON, "{folder}/fairlead"), "python": _PYTHON}

CATALOGUE = Catalogue(
    remedy="use engine.type simulated here, or a real cluster for this image",
    images={
        "fairlead/engine": Image(
            command=("fairlead-engine",),
            programs={"fairlead-engine": (*_PYTHON, "-m", "fairlead_simulator.engine_server")},
            listens=("--host", "{address}"),
            user=_USER,
        ),
        "fairlead/operator": Image(
            command=("fairlead", "operator"), programs=_PROCESS, variables={"FAIRLEAD_OPERATOR_HEALTH_HOST": "{address}"}, user=_USER
        ),
        "fairlead/api": Image(command=("fairlead", "api", "--host", _EVERY_ADDRESS), programs=_PROCESS, user=_USER),
        "fairlead/router": Image(
            command=("fairlead", "router", "--host", _EVERY_ADDRESS, "--admin-host", _EVERY_ADDRESS), programs=_PROCESS, user=_USER
        ),
        "postgres": Image(
            command=("postgres",),
            programs={"postgres": (*_PYTHON, "-m", "fairlead_sandbox.postgres_image"), "pg_isready": ("{postgres}/pg_isready",)},
            places={"postgres": find_binaries},
            variables={"PGDATA": "/var/lib/postgresql/data", "SANDBOX_POD_IP": "{address}"},
            user=("postgres", 999),
            stop_signal=signal.SIGINT,
        ),
    },
)
"""Images by repository."""

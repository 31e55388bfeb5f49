"""The operator's process: `python -m fairlead_operator.main`, or `kopf run -m fairlead_operator.main`."""

import logging
import os
import sys

import kopf

from fairlead.errors import InvalidInput
from fairlead_operator.handlers import children, instances, lifecycle, pools
from fairlead_operator.settings import read_settings

__all__ = ["children", "instances", "lifecycle", "main", "pools"]


def main() -> int:
    """Run until told to stop. 2 and one line on stderr when the settings cannot be used."""
    try:
        settings = read_settings(os.environ)
    except InvalidInput as error:
        print(f"fairlead operator: {error}", file=sys.stderr)
        return 2
    kopf.configure(log_format=kopf.LogFormat.JSON if os.environ.get("FAIRLEAD_LOG_FORMAT") == "json" else kopf.LogFormat.FULL)
    for chatty in ("httpx", "kopf.activities", "kopf.objects"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    kopf.run(
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        standalone=True,
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

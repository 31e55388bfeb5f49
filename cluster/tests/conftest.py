"""Property tests repeat the same examples; what listens on this machine is asked directly, whatever proxy there is."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("processkube", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.load_profile("processkube")

_DIRECT = ",".join(filter(None, (os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), "127.0.0.1", "localhost")))
os.environ.update(no_proxy=_DIRECT, NO_PROXY=_DIRECT)

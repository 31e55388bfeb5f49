"""Settings shared by all tests: in CI, property tests repeat the same examples, so that a red build is always about the
change; elsewhere they look for new ones. Nowhere does an example fail because the machine was slow.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

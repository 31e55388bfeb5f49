"""Settings shared by all tests: in CI, property tests repeat the same examples, so that a red build is always about the
change; elsewhere they look for new ones.
"""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

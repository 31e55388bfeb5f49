"""The pool with which a new sandbox starts, and the background load that gives its pages something to show."""

from collections.abc import Sequence
from typing import Any

POOL_NAMESPACE = "default"
POOL_NAME = "demo"
MODEL = "Qwen/Qwen3-32B"
TIME_SCALE = 2.0
"""Factor by which the demo's engines are faster than real engines. At this speed, the demo's load keeps them about half
busy, and requests wait from time to time.
"""

REQUESTS_PER_SECOND = 3.0
LONGEST_PROMPT = 40_000
"""Maximum prompt tokens in the demo's load. An instance computes 62,500 tokens within the TTFT target of 5 s, so the
pool can serve every request in time.
"""


def demo_pool(engine_port: int) -> dict[str, Any]:
    """Return a pool of four simulated instances under the policy `dualmap`, with an SLO that the demo's load can just
    meet.
    """
    return {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": POOL_NAME, "namespace": POOL_NAMESPACE},
        "spec": {
            "model": MODEL,
            "replicas": 4,
            "engine": {"type": "simulated", "port": engine_port, "simulated": {"timeScale": TIME_SCALE}},
            "routing": {"policy": "dualmap"},
            "slo": {"ttft": "5s", "tpot": "100ms", "percentile": 90},
            "earlyRejection": {"mode": "Load"},
        },
    }


def load_arguments(urls: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of `fairlead replay` for the background load.

    It repeats a generated trace of conversations without end, at a modest rate.
    """
    return (
        *("--generate", "conversation", "--seed", "7", "--loop", "--rate", str(REQUESTS_PER_SECOND)),
        *("--longest-input", str(LONGEST_PROMPT)),
        *("--pool", f"{POOL_NAMESPACE}/{POOL_NAME}", "--model", MODEL),
        *(part for url in urls for part in ("--url", url)),
    )

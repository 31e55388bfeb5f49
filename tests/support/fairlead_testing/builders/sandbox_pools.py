"""Pools and replays that the whole sandbox runs in seconds on two cores, because its engines are twenty times
faster.
"""

from typing import Any

TIME_SCALE = 20.0
"""The factor by which the engines of these pools compute faster than real ones. Traces are replayed about as much
faster.
"""

TTFT_SECONDS = 5.0 / TIME_SCALE

WARMING_SECONDS = 20.0 / TIME_SCALE
"""The warming time of new instances of these pools: the default of 20 s divided by `TIME_SCALE`."""


def pool(name: str, *, policy: str = "dualmap", replicas: int = 4, early_rejection: str = "Disabled", **spec: Any) -> dict[str, Any]:
    """Return the manifest of a pool of simulated engines; its model is `model/<name>`."""
    return {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "model": f"model/{name}",
            "replicas": replicas,
            "engine": {"type": "simulated", "simulated": {"timeScale": TIME_SCALE, "startup": "500ms"}},
            "routing": {"policy": policy, "warming": {"duration": f"{int(WARMING_SECONDS * 1000)}ms"}},
            "slo": {"ttft": f"{int(TTFT_SECONDS * 1000)}ms"},
            "earlyRejection": {"mode": early_rejection},
            "drain": {"timeout": "60s"},
            **spec,
        },
    }


def replay_arguments(name: str, requests: int, speed: float, seed: int = 7) -> tuple[str, ...]:
    """Return the arguments of a replay that sends a generated conversation trace to the pool `name`."""
    return (
        *("--pool", f"default/{name}", "--model", f"model/{name}", "--generate", "conversation", "--seed", str(seed)),
        *("--requests", str(requests), "--speed", str(speed), "--slo-ttft", str(TTFT_SECONDS)),
    )

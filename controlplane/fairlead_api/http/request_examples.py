"""Examples of request bodies, by the name of their type; a test reads each as the API would."""

from typing import Any

EXAMPLES: dict[str, dict[str, Any]] = {
    "LoginRequest": {"a login link's token": {"token": "fll_4J8…"}},
    "OidcLoginRequest": {
        "what a browser brought back": {
            "code": "SplxlOBeZQQYbYS6WxSbIA",
            "code_verifier": "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
            "nonce": "n-0S6_WzA2Mj",
            "redirect_uri": "https://fairlead.example.com/login/oidc/answer",
        }
    },
    "LoginLinkRequest": {"for a colleague": {"role": "operator", "minutes": 10, "subject": "ada"}},
    "TokenRequest": {"for a dashboard": {"name": "grafana", "role": "viewer", "days": 90}},
    "GatewayKeyRequest": {
        "for one pool, with limits": {
            "name": "team-search",
            "pools": ["default/chat"],
            "requests_per_minute": 600,
            "tokens_per_minute": 2_000_000,
        },
        "for everything": {"name": "ci"},
    },
    "GatewayKeyChange": {"may have decisions kept": {"explain": True}},
    "EngineFit": {
        "fitted to a file of records": {
            "source": "records.jsonl",
            "fitted_at": "2026-11-28T12:00:00Z",
            "engines": 8,
            "requests": 599,
            "fitted": 252,
            "contradicting": 53,
            "at_edges": 41,
            "costs": {
                "overhead_seconds": 0.021,
                "prefill_fixed": 0.011,
                "prefill_per_token": 0.00013,
                "prefill_per_context": 0.0,
                "prefill_per_pair": 0.000000003,
                "decode_fixed": 0.019,
                "decode_per_context_token": 0.0000002,
                "decode_per_sequence": 0.0002,
                "max_batched_tokens": 2048,
            },
            "ttft": {
                "requests": 254,
                "real_mean": 0.369,
                "real_p50": 0.314,
                "real_p90": 0.644,
                "real_p99": 1.06,
                "modelled_mean": 0.334,
                "modelled_p50": 0.247,
                "modelled_p90": 0.57,
                "modelled_p99": 0.949,
                "mean_error": 0.124,
                "correlation": 0.947,
            },
            "tpot": {
                "requests": 254,
                "real_mean": 0.0343,
                "real_p50": 0.032,
                "real_p90": 0.048,
                "real_p99": 0.0709,
                "modelled_mean": 0.0329,
                "modelled_p50": 0.0307,
                "modelled_p90": 0.0461,
                "modelled_p99": 0.0672,
                "mean_error": 0.052,
                "correlation": 0.986,
            },
        }
    },
    "KeepSessionRequest": {"for ten minutes": {"session": "574-r2"}, "for an hour": {"session": "574-r2", "minutes": 60}},
    "PlanRequest": {
        "scale": {"kind": "scale", "replicas": 7},
        "another policy": {"kind": "policy", "fields": {"policy": "dualmap", "parameters": {"slo_fraction": 0.5}}},
        "tighter targets": {"kind": "slo", "fields": {"ttft": "3s", "percentile": 95}},
        "drain one instance": {"kind": "drain", "instance": "chat-bk2xz4"},
        "a schedule": {
            "kind": "schedule",
            "fields": {
                "name": "office-hours",
                "action": "set",
                "spec": {
                    "cron": "0 8 * * 1-5",
                    "duration": "10h",
                    "timeZone": "Europe/Berlin",
                    "roles": [{"name": "both", "minReplicas": 4}],
                },
            },
        },
    },
    "ApplyRequest": {"an ordinary plan": {}, "a heavy plan": {"confirm": "chat", "reason": "load test is over"}},
    "SimulationRequest": {
        "two policies on the last hour": {"policies": [{"policy": "fairlead"}, {"policy": "dualmap"}], "start": "now-1h", "end": "now"}
    },
    "SimulationPlanRequest": {"the winner": {}, "the second policy": {"policy": 1}},
}

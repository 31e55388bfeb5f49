"""Every mistake of a person is answered clearly, changes nothing and never shows a traceback."""

from pathlib import Path

import httpx
import pytest

from fairlead_testing.builders.sandbox_pools import pool
from fairlead_testing.running.sandbox import RunningSandbox, fairlead, until
from fairlead_testing.waiting import PATIENCE_SECONDS


@pytest.fixture(scope="module")
def served(sandbox: RunningSandbox) -> RunningSandbox:
    sandbox.apply_pool(pool("served", replicas=1)).raise_for_status()
    sandbox.until_ready("served", 1)
    return sandbox


def test_a_schema_error_names_the_field(served: RunningSandbox) -> None:
    wrong = pool("wrong")
    wrong["spec"]["slo"]["ttft"] = "five seconds"
    answer = served.apply_pool(wrong)
    assert answer.status_code == 422
    assert "spec.slo.ttft" in answer.json()["message"]


def test_a_mode_that_is_not_built_is_refused_rather_than_ignored(served: RunningSandbox) -> None:
    wrong = pool("wrong", scaling={"mode": "Forecast"})
    answer = served.apply_pool(wrong)
    assert answer.status_code in {400, 422, 500}
    assert "scaling" in answer.json()["message"]


def test_a_cel_rule_says_what_to_do(served: RunningSandbox) -> None:
    answer = served.scale_pool("served", 65)
    assert answer.status_code == 422
    assert "maxReplicas" in answer.json()["message"]
    assert served.pool("served")["spec"]["replicas"] == 1


def test_an_immutable_field_cannot_be_changed(served: RunningSandbox) -> None:
    changed = pool("served", replicas=1, model="model/other")
    answer = served.apply_pool(changed)
    assert answer.status_code == 422
    assert "model cannot be changed" in answer.json()["message"]


def test_a_policy_that_no_installed_package_has_becomes_a_condition_with_the_known_ones(served: RunningSandbox) -> None:
    assert served.apply_pool(pool("wrong", policy="psychic")).status_code in {200, 201}
    until(lambda: served.condition("wrong", "Ready").get("reason") == "InvalidRouting", "Ready=False")
    assert "psychic" in served.condition("wrong", "Ready")["message"]
    assert "dualmap" in served.condition("wrong", "Ready")["message"]
    served.delete_pool("wrong")


def test_a_policys_name_of_the_wrong_shape_is_refused_by_the_schema(served: RunningSandbox) -> None:
    answer = served.apply_pool(pool("wrong", policy="Psychic!"))
    assert answer.status_code == 422
    assert "policy" in answer.json()["message"]


def test_a_policy_parameter_of_the_wrong_type_becomes_a_condition_and_what_serves_keeps_serving(served: RunningSandbox) -> None:
    wrong = pool("served", replicas=1, routing={"policy": "dualmap", "parameters": {"slo_fraction": "half"}})
    assert served.apply_pool(wrong).status_code == 200

    def told() -> str:
        ready = served.condition("served", "Ready")
        return str(ready["message"]) if ready.get("status") == "False" else ""

    until(lambda: "slo_fraction" in told(), "Ready=False, and the parameter is named")
    assert "half" in told()
    assert _chat(served, {"model": "model/served", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}).status_code == 200
    served.apply_pool(pool("served", replicas=1)).raise_for_status()
    served.until_ready("served", 1)


def _chat(sandbox: RunningSandbox, body: object, **options: object) -> httpx.Response:
    return httpx.post(sandbox.routers[0] + "/v1/chat/completions", json=body, timeout=PATIENCE_SECONDS, trust_env=False, **options)  # type: ignore[arg-type]  # options are httpx's


def test_malformed_json_is_a_400_in_openais_words(served: RunningSandbox) -> None:
    answer = httpx.post(served.routers[0] + "/v1/chat/completions", content=b'{"model": ', timeout=PATIENCE_SECONDS, trust_env=False)
    assert answer.status_code == 400
    assert "JSON" in answer.json()["error"]["message"]


def test_a_body_over_the_limit_is_a_413_before_it_is_read(served: RunningSandbox) -> None:
    answer = _chat(served, {"model": "model/served", "messages": [{"role": "user", "content": "x" * 34_000_000}]})
    assert answer.status_code == 413
    assert "larger than" in answer.json()["error"]["message"]


def test_an_unknown_model_lists_the_known_ones(served: RunningSandbox) -> None:
    answer = _chat(served, {"model": "nobody/knows", "messages": [{"role": "user", "content": "hi"}]})
    assert answer.status_code == 404
    assert "model/served" in answer.json()["error"]["message"]


def test_oversized_headers_are_refused(served: RunningSandbox) -> None:
    body = {"model": "model/served", "messages": [{"role": "user", "content": "hi"}]}
    answer = _chat(served, body, headers={"x-session-id": "s" * 100_000})
    assert answer.status_code == 431


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}], ids=["no token", "bad token"])
def test_the_api_answers_401_without_a_good_token(served: RunningSandbox, headers: dict[str, str]) -> None:
    answer = httpx.get(served.url("api") + "/v1/pools", headers=headers, timeout=PATIENCE_SECONDS, trust_env=False)
    assert answer.status_code == 401
    assert answer.json()["status"] == 401
    assert answer.headers["content-type"].startswith("application/problem+json")


def test_a_login_link_works_once(served: RunningSandbox) -> None:
    link = served.request("POST", "/v1/login-links", json={"role": "viewer"}).json()
    first = httpx.post(served.url("api") + "/v1/login", json={"token": link["token"]}, timeout=PATIENCE_SECONDS, trust_env=False)
    assert first.status_code == 200
    second = httpx.post(served.url("api") + "/v1/login", json={"token": link["token"]}, timeout=PATIENCE_SECONDS, trust_env=False)
    assert second.status_code == 401
    assert "link" in second.json()["detail"]


def test_a_trace_line_that_is_not_json_is_named(served: RunningSandbox, tmp_path: Path) -> None:
    trace = tmp_path / "bad.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [0, 1]}\nnot json\n')
    answer = fairlead("replay", "--trace", str(trace), "--url", served.routers[0])
    assert answer.returncode != 0
    assert "line 2" in answer.stderr or ":2" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_router_that_is_not_there_is_one_line() -> None:
    answer = fairlead("replay", "--generate", "conversation", "--requests", "3", "--url", "http://127.0.0.1:9")
    assert answer.returncode != 0
    assert "127.0.0.1:9" in answer.stderr
    assert "Traceback" not in answer.stderr

"""The OpenAPI document describes exactly what the API accepts and answers."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead_api.http.bodies import check_json
from fairlead_api.http.documenting import EXAMPLES, REFUSALS
from fairlead_client.resources import (
    access,
    audit,
    comments,
    engine_fits,
    gateway_keys,
    plan_kinds,
    plans,
    sessions,
    simulations,
    trials,
    webhooks,
)
from fairlead_client.resources.problems import Problem

DOCUMENT: dict[str, Any] = json.loads((Path(__file__).parents[4] / "docs" / "openapi.json").read_text(encoding="utf-8"))
"""The stored document, which `test_openapi.py` compares with the code.

Generating it would take more than a second in each process that collects these tests.
"""
OPERATIONS = [(path, method, found) for path, item in DOCUMENT["paths"].items() for method, found in item.items()]
MODULES = (access, audit, comments, engine_fits, gateway_keys, plan_kinds, plans, sessions, simulations, trials, webhooks)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_a_body_is_one_that_the_api_reads(name: str) -> None:
    [kind] = {getattr(module, name) for module in MODULES if hasattr(module, name)}
    for body in EXAMPLES[name].values():
        check_json(msgspec.json.encode(body))
        msgspec.convert(body, kind)
        assert body.keys() <= DOCUMENT["components"]["schemas"][name]["properties"].keys()


def test_every_body_of_people_has_an_example() -> None:
    for path, method, operation in OPERATIONS:
        if path.startswith("/v1/") and "requestBody" in operation:
            assert operation["requestBody"]["content"]["application/json"].get("examples"), (
                f"{method} {path}: add one to EXAMPLES in http/documenting.py"
            )


@pytest.mark.parametrize("status", REFUSALS)
def test_an_example_of_a_refusal_is_a_problem_of_its_status(status: str) -> None:
    example = DOCUMENT["components"]["responses"][status]["content"]["application/problem+json"]["example"]
    problem = msgspec.convert(example, Problem)
    assert (str(problem.status), bool(problem.detail)) == (status, True)
    assert problem.remedy is None or problem.remedy not in problem.detail


def test_every_answer_has_its_request_id_and_every_json_answer_its_tag() -> None:
    for path, method, operation in OPERATIONS:
        for status, answer in operation["responses"].items():
            assert "$ref" in answer or "X-Request-ID" in answer["headers"], (method, path, status)
        whole = method == "get" and path.startswith("/v1/") and not path.endswith((".csv", ".json", "/export", "/live"))
        assert ("304" in operation["responses"]) == whole, path


def test_a_list_says_what_it_can_be_sorted_by_and_that_fields_make_it_sparse() -> None:
    operation = DOCUMENT["paths"]["/v1/migrations"]["get"]
    [sort] = [one["schema"] for one in operation["parameters"] if one["name"] == "sort"]
    assert (sort["enum"], sort["default"]) == (["-at", "at"], "-at")
    kinds = operation["responses"]["200"]["content"]["application/json"]["schema"]["anyOf"]
    assert kinds[1] == {"$ref": "#/components/schemas/SparsePage_Migration_"}
    assert "required" not in DOCUMENT["components"]["schemas"]["SparseMigration"]
    assert "required" in DOCUMENT["components"]["schemas"]["Migration"]

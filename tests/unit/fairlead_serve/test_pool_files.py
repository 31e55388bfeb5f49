"""The file of a served pool: the fields that it may have, and the spec that it becomes."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from fairlead.errors import InvalidInput
from fairlead.pools import parse_spec
from fairlead.schemas.shapes import document_name
from fairlead_process.policies import installed_policies
from fairlead_serve.pool_files import EngineEntry, ServedPool, parse_pool_file

TWO = "engines: [{url: 'http://10.0.0.7:8000'}, {url: 'http://gpu-2:8000/v1', name: second, weight: 2}]\n"


def test_engines_are_named_by_their_address_unless_the_file_names_them() -> None:
    engines = parse_pool_file(TWO, installed_policies()).pool.engines
    assert [(one.id, one.address, one.weight) for one in engines] == [("10.0.0.7-8000", "10.0.0.7:8000", 1), ("second", "gpu-2:8000", 2)]


def test_the_spec_is_that_of_an_inference_pool_for_which_nothing_is_made() -> None:
    content = f"{TWO}slo: {{ttft: 800ms}}\nrouting: {{policy: dualmap}}\nengine: {{passClientCredentials: true}}\n"
    document = parse_pool_file(content, installed_policies()).spec("m", "vllm")
    spec = parse_spec(document)
    assert (spec.replicas, spec.roles[0].max_replicas, spec.model) == (0, 0, "m")
    assert (spec.slo.ttft_seconds, spec.routing.policy, spec.engine.pass_client_credentials) == (0.8, "dualmap", True)
    assert document["slo"]["ttft"] == "800ms", "as it was written, so that a plan finds it again"
    assert not {"scaling", "ratio", "rollout"} & document.keys()


DIVIDED = "engines: [{url: 'http://a:1', role: prefill}, {url: 'http://b:1', role: decode}, {url: 'http://c:1', role: decode}]\n"
VLLM = "engine: {type: vllm}\n"


def test_prefill_and_decode_are_roles_of_the_spec_with_as_many_instances_as_the_file_has_engines() -> None:
    file = parse_pool_file(f"{DIVIDED}{VLLM}earlyRejection: {{mode: AfterPrefill}}", installed_policies())
    spec = parse_spec(file.spec("m", "vllm"))
    assert [(role.name.value, role.max_replicas) for role in spec.roles] == [("decode", 2), ("prefill", 1)]
    assert spec.early_rejection.mode == "AfterPrefill"


def test_adapters_of_the_engines_are_those_of_the_pool() -> None:
    file = parse_pool_file(f"{TWO}adapters: [sql, org/fr]\nengine: {{type: vllm}}\n", installed_policies())
    assert parse_spec(file.spec("m", "vllm")).facts().adapters == ("sql", "org/fr")


@pytest.mark.parametrize(
    ("content", "field", "words"),
    [
        ("engines: []", "engines", "1 to 1024"),
        ("slo: {ttft: 1s}", "engines", "it is required"),
        ("engines: [{url: 'https://a:1'}]", "engines[0].url", "TLS to engines is not supported"),
        ("engines: [{url: 'a:8000'}]", "engines[0].url", "write http://HOST:PORT"),
        ("engines: [{url: 'http://a:99999'}]", "engines[0].url", "write http://HOST:PORT"),
        ("engines: [{url: 'http://a:0'}]", "engines[0].url", "no engine can listen on port 0"),
        ("engines: [{url: 'http://ho st:8000'}]", "engines[0].url", "a host is a name"),
        ("engines: [{url: 'http://a,b:8000'}]", "engines[0].url", "a host is a name"),
        ("engines: [{url: 'http://-a:8000'}]", "engines[0].url", "a host is a name"),
        ("engines: [{url: 'http://hö:8000'}]", "engines[0].url", "a host is a name"),
        ("engines: [{url: 'http://[fe80::x]:8000'}]", "engines[0].url", "write http://HOST:PORT"),
        ("engines: [{url: 'http://a:1/llm'}]", "engines[0].url", "without a path"),
        ("engines: [{url: 'http://a:1', role: prefill}]", "engines[].role", "some prefill and all others decode"),
        ("engines: [{url: 'http://a:1', role: prefill}, {url: 'http://b:1'}]", "engines[].role", "some prefill and all others decode"),
        (DIVIDED, "engine.type", "need engine.type vllm"),
        ("engines: [{url: 'http://a:1'}]\nearlyRejection: {mode: AfterPrefill}", "earlyRejection", "needs the roles prefill and decode"),
        ("engines: [{url: 'http://a:1', wieght: 2}]", "engines[0].wieght", "url, name, role, weight, drain"),
        ("engines: [{url: 'http://a:1'}, {url: 'http://a:1/'}]", "engines", "another url"),
        ("engines: [{url: 'http://a:1', name: x}, {url: 'http://a:2', name: x}]", "engines[1].name", "another name"),
        (f"{TWO}roles: [{{name: prefill}}]", "roles", "remove it; the fields of the file are engines"),
        (f"{TWO}scaling: {{mode: SLO}}", "scaling", "remove it"),
        (f"{TWO}engine: {{port: 8000}}", "engine.port", "remove it"),
        (f"{TWO}adapters: [sql]", "adapters", "adapters need engine.type vllm"),
        (f"{TWO}engine: {{kvTransfer: {{}}}}", "engine.kvTransfer", "engine.kvTransfer needs engine.type vllm"),
        (f"{TWO}engine: {{type: vllm, kvTransfer: {{kind: OffloadingP2P}}}}", "engine.kvTransfer.kind", "not supported"),
        (f"{TWO}engine: {{type: vllm, kvTransfer: {{kind: SharedStore}}}}", "engine.kvTransfer.storeTokens", "is required"),
        (f"{TWO}adapters: ['a b']\nengine: {{type: vllm}}", "adapters[0]", "matches"),
        (f"{TWO}slo: {{ttft: soon}}", "slo.ttft", "duration"),
        (f"{TWO}slo: {{task: [{{name: batch, turnTime: 9m}}]}}", "slo.task[0].name", "must be one of priorityClasses"),
        (f"{TWO}slo: {{task: [{{name: default}}]}}", "slo.task[0].turnTime", "write slo.task[].turnTime, wallTime, or both"),
        (f"{TWO}routing: {{policy: dualmpa}}", "routing.policy", "choose one of"),
        (f"{TWO}routing: {{policy: dualmap, parameters: {{slo_fraction: x}}}}", "routing.parameters.slo_fraction", "number"),
        ("engines: [\n", "file", "file: correct the YAML: line 2, column 1: expected the node content"),
        ("engines: \x00", "file", "file: correct the YAML: "),
        ("", "file", "write an object"),
    ],
)
def test_what_cannot_be_used_is_refused_with_field_value_and_remedy(content: str, field: str, words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_pool_file(content, installed_policies())
    assert refused.value.field == field
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_document_names_every_field_of_the_file() -> None:
    page = (Path(__file__).parents[3] / "docs/serve.md").read_text()
    told = set(re.findall(r"`([a-zA-Z\[\].]+)`", "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))))
    own = {f"engines[].{document_name(item)}" for item in fields(EngineEntry)}
    assert told == {document_name(item) for item in fields(ServedPool)} | own

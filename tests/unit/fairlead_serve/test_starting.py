"""`fairlead serve` checks its command line before it starts anything."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from fairlead.errors import InvalidInput
from fairlead_process.policies import installed_policies
from fairlead_sandbox.ports import PortClaims, claim_ports
from fairlead_serve.pool_files import parse_pool_file
from fairlead_serve.probing import EngineFindings
from fairlead_serve.starting import ServeOptions, ServeRun, check_options, claimed_ports, forget_other_model, pool_of
from fairlead_serve.state_files import Memory, StateFiles, own_pool_file
from fairlead_serve.summary import engine_line, waiting_notices

QUIET_PORT = 21_000
"""A port below the range from which the kernel assigns ports, so that no process takes it during a test."""

ONE, TWO = "http://127.0.0.1:8000", "http://127.0.0.1:8001"


def options(root: Path, *engines: str, config: Path | None = None) -> ServeOptions:
    return ServeOptions(state_dir=root, engines=engines, config=config)


def test_engines_of_the_command_line_become_a_file_that_keeps_what_was_changed_in_it(tmp_path: Path) -> None:
    pool_of(options(tmp_path, ONE), tmp_path)
    path = own_pool_file(tmp_path)
    path.write_text(yaml.safe_dump({"engines": [{"url": ONE, "weight": 2}], "slo": {"ttft": "1s"}}))
    _, file = pool_of(options(tmp_path, TWO, f"{ONE}/v1", ONE), tmp_path)
    assert [(one.url, one.weight) for one in file.pool.engines] == [(TWO, 1), (ONE, 2)]
    assert file.pool.slo.ttft_seconds == 1
    _, again = pool_of(options(tmp_path), tmp_path)
    assert again.pool == file.pool, "without --engine it goes on with those of the last run"


def test_prefill_and_decode_engines_of_the_command_line_become_roles_in_the_file(tmp_path: Path) -> None:
    options = ServeOptions(state_dir=tmp_path, prefills=("http://a:1",), decodes=("http://b:1", "http://c:1"))
    _, file = pool_of(options, tmp_path)
    assert [(one.id, one.role.value) for one in file.pool.engines] == [("a-1", "prefill"), ("b-1", "decode"), ("c-1", "decode")]
    _, again = pool_of(ServeOptions(state_dir=tmp_path, engines=("http://a:1", "http://b:1")), tmp_path)
    assert [one.role.value for one in again.pool.engines] == ["both", "both"]


def test_a_file_of_the_user_is_read_and_not_written(tmp_path: Path) -> None:
    given = tmp_path / "mine.yaml"
    given.write_text(f"engines: [{{url: '{ONE}'}}]  # mine\n")
    files, file = pool_of(options(tmp_path, config=given), tmp_path)
    assert file.pool.engines[0].url == ONE
    assert not files.is_ours
    assert "# mine" in given.read_text()
    assert not own_pool_file(tmp_path).exists()


@pytest.mark.parametrize(
    ("engines", "config", "words"),
    [
        ((), None, "--engine: name an engine, such as --engine http://127.0.0.1:8000"),
        (("gpu-1:8000",), None, "--engine: 'gpu-1:8000' cannot be used; write http://HOST:PORT"),
        ((), "nowhere.yaml", "write a file that can be read"),
        ((ONE,), "nowhere.yaml", "write it into nowhere.yaml, or leave --config out"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line_and_nothing_is_made(
    engines: tuple[str, ...], config: str | None, words: str, tmp_path: Path
) -> None:
    root = tmp_path / "state"
    given = options(root, *engines, config=None if config is None else Path(config))
    with pytest.raises(InvalidInput) as refused:
        asyncio.run(ServeRun(given, {}, None).run())
    assert words in str(refused.value)
    assert not root.exists()


@pytest.mark.parametrize("host", ["nowhere.invalid", "192.0.2.1", "::1", "a..b", ""])
def test_a_host_that_cannot_be_listened_on_is_refused_by_its_option(host: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="write an IPv4 address of this machine") as refused:
        check_options(ServeOptions(state_dir=tmp_path, engines=(ONE,), host=host))
    assert refused.value.field == "--host"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_an_address_of_this_machine_is_a_host(host: str, tmp_path: Path) -> None:
    check_options(ServeOptions(state_dir=tmp_path, engines=(ONE,), host=host))


@pytest.fixture
def held() -> Iterator[PortClaims]:
    """Yield the claim of another sandbox on a port on which no process listens yet."""
    claims = claim_ports({"api": QUIET_PORT})
    yield claims
    claims.release()


@pytest.mark.parametrize("option", ["--port", "--dashboard-port"])
def test_a_port_that_was_asked_for_is_never_replaced_by_another(option: str, held: PortClaims, tmp_path: Path) -> None:
    port = held.ports["api"]
    none = ServeOptions(state_dir=tmp_path)
    asked = replace(none, port=port) if option == "--port" else replace(none, dashboard_port=port)
    with pytest.raises(InvalidInput, match=f"{option}: {port} cannot be used; the port is taken"):
        claimed_ports(asked, {})


@pytest.mark.parametrize("option", ["--port", "--dashboard-port"])
def test_a_start_that_is_refused_for_its_port_leaves_the_engines_of_the_last_run(option: str, held: PortClaims, tmp_path: Path) -> None:
    pool_of(options(tmp_path, ONE), tmp_path)
    port = held.ports["api"]
    asked = options(tmp_path, TWO)
    asked = replace(asked, port=port) if option == "--port" else replace(asked, dashboard_port=port)
    with pytest.raises(InvalidInput, match="the port is taken"):
        asyncio.run(ServeRun(asked, {}, None).run())
    assert [one.url for one in pool_of(options(tmp_path), tmp_path)[1].pool.engines] == [ONE]


def test_gateway_and_dashboard_cannot_have_one_port_and_no_claim_is_left(held: PortClaims, tmp_path: Path) -> None:
    port = held.ports["api"]
    held.release()
    with pytest.raises(InvalidInput, match=f"--dashboard-port: {port} cannot be used; the port is taken"):
        claimed_ports(ServeOptions(state_dir=tmp_path, port=port, dashboard_port=port), {})
    again = claim_ports({"api": port})
    again.release()
    assert again.ports["api"] == port


def test_a_port_that_was_asked_for_is_not_given_to_another_part_that_had_it_last_time(held: PortClaims, tmp_path: Path) -> None:
    port = held.ports["api"]
    held.release()
    claims = claimed_ports(ServeOptions(state_dir=tmp_path, dashboard_port=port), {"router-0": port})
    claims.release()
    assert claims.ports["api"] == port
    assert claims.ports["router-0"] > port


@pytest.mark.parametrize(("told", "stays"), [((), True), (("m", "n"), True), (("n",), False)])
def test_engines_that_serve_another_model_than_last_time_are_another_pool(told: tuple[str, ...], stays: bool, tmp_path: Path) -> None:
    files = StateFiles(root=tmp_path, pool_file=own_pool_file(tmp_path))
    files.write_memory(Memory(name="engines", uid="0" * 32, model="m"))
    file = parse_pool_file(f"engines: [{{url: '{ONE}'}}]", installed_policies())
    forget_other_model(files, file, [EngineFindings(url=ONE, models=told)])
    assert (files.read_memory() is not None) is stays


@pytest.mark.parametrize(("written", "stays"), [("", False), ("engine: {type: vllm}", True)])
def test_engines_of_another_kind_than_last_time_are_another_pool_unless_the_file_names_it(
    written: str, stays: bool, tmp_path: Path
) -> None:
    files = StateFiles(root=tmp_path, pool_file=own_pool_file(tmp_path))
    files.write_memory(Memory(name="engines", uid="0" * 32, model="m"))
    file = parse_pool_file(f"engines: [{{url: '{ONE}'}}]\n{written}", installed_policies())
    forget_other_model(files, file, [EngineFindings(url=ONE, models=("m",), engine_type="sglang")])
    assert (files.read_memory() is not None) is stays


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            EngineFindings(url=ONE, models=("m",), engine_type="sglang", version="0.5.23", kv_cache_tokens=9600),
            "m · SGLang, version 0.5.23 · KV cache of 9,600 tokens · no KV events",
        ),
        (
            EngineFindings(url=ONE, problem="it does not accept connections"),
            "it does not accept connections; it joins the pool when it answers",
        ),
        (EngineFindings(url=ONE, models=("other",)), "serves other, not m; it stays out of the pool"),
        (
            EngineFindings(url=ONE, models=("m",), version="0.11", kv_cache_tokens=9600),
            "m · version 0.11 · KV cache of 9,600 tokens · no KV events",
        ),
        (EngineFindings(url=ONE), "lists its models only to clients with its key · does not report the size of its KV cache"),
    ],
)
def test_an_engine_is_told_of_in_one_line(found: EngineFindings, words: str) -> None:
    assert words in engine_line(found, "m")


@pytest.mark.parametrize(
    ("finding", "model", "words"),
    [
        (EngineFindings(url=ONE), None, ("no engine lists its model without an API key: write `model` into /s/pool.yaml",)),
        (EngineFindings(url=ONE), "m", ()),
        (EngineFindings(url=ONE, problem="silent"), None, ("no engine answers yet: requests get 503 until one does",)),
    ],
)
def test_the_summary_says_what_the_pool_waits_for(finding: EngineFindings, model: str | None, words: tuple[str, ...]) -> None:
    assert waiting_notices((finding,), model, Path("/s/pool.yaml")) == words

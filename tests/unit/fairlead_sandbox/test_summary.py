"""The summary that a newcomer reads when the sandbox is up."""

from dataclasses import replace
from pathlib import Path

import pytest

from fairlead_sandbox.summary import StartReport, render

SUMMARY = StartReport(
    dashboards=("http://127.0.0.1:8080",),
    login_link="http://127.0.0.1:8080/login?token=fll_" + "x" * 43,
    gateways=("http://127.0.0.1:8000", "http://127.0.0.1:8001"),
    metrics=("http://127.0.0.1:9000/metrics", "http://127.0.0.1:9001/metrics"),
    kubeconfig=Path("/srv/a-rather-long-path-for-a-state-directory/.fairlead/kubeconfig"),
    state_dir=Path("/srv/a-rather-long-path-for-a-state-directory/.fairlead"),
    demo=True,
    detached=True,
    notices=("port 8080 is taken: api listens on 8081",),
)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_every_line_to_be_copied_is_whole_however_narrow_the_terminal(width: int) -> None:
    lines = [line.strip() for line in render(SUMMARY, width=width, coloured=False).splitlines()]
    assert SUMMARY.login_link in lines
    assert f"export KUBECONFIG={SUMMARY.kubeconfig}" in lines
    assert "kubectl get fpool" in lines
    (curl,) = [line for line in lines if line.startswith("curl")]
    assert curl.endswith("}'")
    assert any(line.startswith("fairlead replay --trace TRACE.jsonl --url http://127.0.0.1:8000 --pool default/demo") for line in lines)


@pytest.mark.parametrize("width", [60, 200])
def test_commands_to_be_copied_address_this_sandbox_and_no_other(width: int) -> None:
    lines = [line.strip() for line in render(SUMMARY, width=width, coloured=False).splitlines()]
    assert f"fairlead down --state-dir {SUMMARY.state_dir}" in lines
    assert f"Sign in (once, within ten minutes; `fairlead login --state-dir {SUMMARY.state_dir}` makes another link):" in lines
    here = render(replace(SUMMARY, state_dir=Path(".fairlead").absolute()), width=width, coloured=False)
    assert "--state-dir" not in here


def test_a_newcomer_whose_path_lacks_the_command_is_told_how_to_get_it() -> None:
    assert "source " not in render(SUMMARY, width=120, coloured=False)
    told = render(replace(SUMMARY, activate=Path("/srv/fairlead/.venv/bin/activate")), width=60, coloured=False)
    assert "  source /srv/fairlead/.venv/bin/activate\n" in told


def test_commands_to_be_copied_are_one_word_for_the_shell_where_a_path_is() -> None:
    folder = Path("/srv/r & d")
    told = render(replace(SUMMARY, activate=folder / "activate", kubeconfig=folder / "kubeconfig"), width=60, coloured=False)
    assert "  source '/srv/r & d/activate'\n" in told
    assert "  export KUBECONFIG='/srv/r & d/kubeconfig'\n" in told


def test_what_is_not_as_expected_is_said() -> None:
    assert "api listens on 8081" in render(SUMMARY, width=120, coloured=False)


def test_colours_are_used_only_where_the_terminal_takes_them() -> None:
    assert "\x1b[" not in render(SUMMARY, width=120, coloured=False)
    assert "\x1b[" in render(SUMMARY, width=120, coloured=True)


def test_where_the_gateway_wants_a_key_the_request_to_be_copied_shows_it() -> None:
    lines = [line.strip() for line in render(replace(SUMMARY, gateway_key="k"), width=60, coloured=False).splitlines()]
    assert "export FAIRLEAD_GATEWAY_KEY=k" in lines
    (curl,) = [line for line in lines if line.startswith("curl")]
    assert ' -H "authorization: Bearer $FAIRLEAD_GATEWAY_KEY" ' in curl
    assert "FAIRLEAD_GATEWAY_KEY" not in render(SUMMARY, width=60, coloured=False)

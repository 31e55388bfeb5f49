"""Environment variables that any file names exist, and their defaults can be written as text."""

import re
from pathlib import Path

import pytest

from fairlead_cli.subcommands import SUBCOMMANDS
from fairlead_host.settings import HostSettings
from fairlead_operator.settings import OperatorSettings
from fairlead_process.environment import names, variables
from fairlead_process.logs import LogSettings
from fairlead_process.starting import FaultSettings
from fairlead_router.settings import RouterSettings
from fairlead_sandbox.settings import OF_COMMANDS, SandboxSettings
from fairlead_web.frame.settings import AloneSettings

ROOT = Path(__file__).parents[3]
SETTINGS = (RouterSettings, HostSettings, AloneSettings, OperatorSettings, SandboxSettings, LogSettings, FaultSettings)


def test_every_variable_named_anywhere_in_code_or_documents_exists() -> None:
    known = names(*SETTINGS) | OF_COMMANDS
    folders = (
        "core",
        "controlplane",
        "operator",
        "router",
        "simulator",
        "webui",
        "cli",
        "host",
        "sandbox",
        "serve",
        "cluster",
        "docs",
        "helm",
    )
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md", ".yaml", ".html"}]
    files += [ROOT / "README.md"]
    named = {
        (name, str(path.relative_to(ROOT)))
        for path in files
        for name in re.findall(r"\bFAIRLEAD_[A-Z0-9_]+[A-Z0-9]\b", path.read_text(encoding="utf-8"))
        if not name.startswith(("FAIRLEAD_SANDBOX_", "FAIRLEAD_TEST_")) and "fairlead_process" not in str(path)
    }
    assert {place for place in named if place[0] not in known and place[0] not in {"FAIRLEAD_KEEP"}} == set()


def test_the_variables_of_commands_are_those_of_their_options() -> None:
    read = {option.envvar for subcommand in SUBCOMMANDS.values() for option in subcommand.load().params if option.envvar}
    assert read | names(FaultSettings) == OF_COMMANDS


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_default_is_a_value_that_could_have_been_written(settings: type[object]) -> None:
    for found, default in variables(settings):
        if isinstance(default, int | float | str) and default != "" and not found.default_shown:
            text = str(int(default)) if isinstance(default, bool) else str(default)
            assert found.kind.parse(text) == default, found.name

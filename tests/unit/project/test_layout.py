"""The repository follows its own rules of layout."""

import operator
import re
import sysconfig
import tomllib
from pathlib import Path

import pytest

from fairlead_simulator.engine_server.protocols.routes import RouteTable

ROOT = Path(__file__).parents[3]
COMPONENTS = ("core", "controlplane", "operator", "router", "simulator", "webui", "cli", "host", "sandbox", "serve", "cluster/src")


def test_the_standard_librarys_operator_module_is_not_shadowed() -> None:
    assert Path(operator.__file__ or "").is_relative_to(sysconfig.get_paths()["stdlib"])


@pytest.mark.parametrize("component", COMPONENTS)
def test_component_folders_hold_packages_only(component: str) -> None:
    assert not list((ROOT / component).glob("*.py"))


def test_tests_are_not_packages() -> None:
    inits = [found for tests in ("tests", "cluster/tests") for found in (ROOT / tests).rglob("__init__.py")]
    assert [found for found in inits if "support" not in found.parts] == []


def test_every_package_says_what_it_is_for() -> None:
    silent = [
        str(init.relative_to(ROOT))
        for component in COMPONENTS
        for init in (ROOT / component).rglob("__init__.py")
        if not init.read_text().lstrip().startswith('"""')
    ]
    assert silent == []


def test_drawer_modules_do_not_exist() -> None:
    drawers = {"utils.py", "helpers.py", "common.py", "manager.py", "misc.py", "base.py"}
    found = [str(path.relative_to(ROOT)) for component in COMPONENTS for path in (ROOT / component).rglob("*.py") if path.name in drawers]
    assert found == []


def test_the_simulators_guide_names_every_path_of_the_engine_and_no_other() -> None:
    guide = (ROOT / "docs/simulator.md").read_text().split("## The engine as a server")[1].split("Where it differs")[0]
    rows = [line.split("|")[1] for line in guide.splitlines() if line.startswith("| `")]
    told = {path for row in rows for path in re.findall(r"(/[^`,\s]+)", row)}
    assert told == set(RouteTable(None, sleeps=True).paths)


def test_the_images_are_built_from_all_that_the_wheel_takes() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    wheel = tool["hatch"]["build"]["targets"]["wheel"]
    taken = {Path(path).parts[0] for path in [*wheel["packages"], *wheel["force-include"], *tool["uv"]["workspace"]["members"]]}
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert taken <= let_through
    assert [name for name in let_through if not (ROOT / name).exists()] == []


def test_the_sandbox_needs_exactly_the_version_of_its_kubernetes_that_is_here() -> None:
    ours, its = (tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in (".", "cluster"))
    assert its["version"] == ours["version"]
    assert f"{its['name']}=={its['version']}" in ours["optional-dependencies"]["sandbox"]

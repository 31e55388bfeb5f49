"""scripts/bootstrap.sh and environments.sh, with scripts in place of Python and uv.

Environments that an interrupted run left incomplete are made again, and an interpreter is judged by running it.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"
SCRIPT = SCRIPTS / "bootstrap.sh"

PYTHON = """#!/bin/sh
case "$*" in
*"-m venv"*)
  echo "$@" >>made
  mkdir -p .venv/bin && printf '#!/bin/sh\\n' >.venv/bin/python && printf '#!/bin/sh\\necho uv VERSION\\n' >.venv/bin/uv
  chmod +x .venv/bin/*
  ;;
esac
"""


UV = """#!/bin/sh
echo "$@" >>made
case "$1" in venv) for last; do :; done; mkdir -p "$last/bin" && ln -s /bin/echo "$last/bin/python" ;; esac
"""


def scripts_in(checkout: Path) -> None:
    (checkout / "scripts").mkdir()
    for name in ("bootstrap.sh", "environments.sh", "pythons.sh", "sync-dependencies.sh"):
        shutil.copy(SCRIPTS / name, checkout / "scripts")


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def interpreter(version: str | None) -> str:
    """Return a program that prints this version; with None one that fails like a shim without an interpreter."""
    return f"#!/bin/sh\necho {version}\n" if version else "#!/bin/sh\necho 'pyenv: command not found' >&2\nexit 127\n"


@pytest.mark.parametrize(
    ("on_path", "told", "variables", "made"),
    [
        ({"python3": "3.13.5"}, "run on Python 3.13.5, the only one here", (".venv/bin", ".venv/bin"), 0),
        ({"python3": "3.13.5", "python3.13": "3.13.5", "python3.14": None, "python3.12": None}, "the only one here", (".venv/bin",) * 2, 0),
        (
            {"python3.9": None, "python3.11": "3.11.2", "python3.14": "3.14.10", "python3.14-config": "9.9.9"},
            "unit tests run on Python 3.11.2, the oldest here, and integration tests on Python 3.14.10, the newest",
            (".venv-tools/python-3.11.2/bin", ".venv-tools/python-3.14.10/bin"),
            2,
        ),
        (
            {"python3.9": None, "python3.100": "3.100.1"},
            "on Python 3.100.1, the newest",
            (".venv/bin", ".venv-tools/python-3.100.1/bin"),
            1,
        ),
    ],
)
def test_unit_tests_get_the_oldest_interpreter_that_runs_and_integration_tests_the_newest(
    on_path: dict[str, str | None], told: str, variables: tuple[str, str], made: int, tmp_path: Path
) -> None:
    scripts_in(tmp_path)
    (tmp_path / "uv.lock").write_text("lock")
    program(tmp_path / ".venv/bin/python", interpreter("3.13.5"))
    program(tmp_path / ".venv/bin/uv", UV)
    for name, version in on_path.items():
        program(tmp_path / "bin" / name, interpreter(version))
    for name in ("bash", "cmp", "cp", "cut", "dirname", "grep", "ln", "mkdir", "sh", "sort", "tail"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "missing")
    for calls in (3 * made, 3 * made):  # a venv, its packages and one of them again for each; the second time nothing
        done = subprocess.run(
            ["bash", "scripts/environments.sh"],
            env={"PATH": str(tmp_path / "bin")},
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        )
        assert told in done.stderr
        assert done.stdout == "UNIT_BIN={} INTEGRATION_BIN={}\n".format(*variables)
        assert len((tmp_path / "made").read_text().splitlines() if calls else []) == calls


def test_an_interpreter_that_only_has_a_version_in_its_name_is_found(tmp_path: Path) -> None:
    scripts_in(tmp_path)
    program(tmp_path / "bin/python3", interpreter(None))
    program(tmp_path / "bin/python3.14", interpreter("3.14.10"))
    for name in ("bash", "cut", "dirname", "grep", "sort", "tail"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "missing")
    line = '. scripts/pythons.sh; eval "$(grep -A 3 "^python=" scripts/bootstrap.sh)"; echo "$python"'
    done = subprocess.run(
        ["bash", "-c", line], env={"PATH": str(tmp_path / "bin")}, cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stdout == f"{tmp_path}/bin/python3.14\n"


@pytest.mark.parametrize(("left", "calls"), [(None, 1), ("exit 1", 1), ("exit 0", 0)])
def test_an_environment_without_pip_is_made_again_and_a_whole_one_is_kept(left: str | None, calls: int, tmp_path: Path) -> None:
    version = re.search(r"^UV_VERSION=(\S+)$", SCRIPT.read_text(), re.MULTILINE)
    assert version is not None
    script = PYTHON.replace("VERSION", version[1])
    scripts_in(tmp_path)
    programs = {"stand-in": script}
    if left is not None:
        programs |= {".venv/bin/python": f"#!/bin/sh\n{left}\n", ".venv/bin/uv": f"#!/bin/sh\necho uv {version[1]}\n"}
    for name, text in programs.items():
        program(tmp_path / name, text)
    environment = {**os.environ, "PYTHON": str(tmp_path / "stand-in")}
    subprocess.run(["bash", tmp_path / "scripts" / "bootstrap.sh"], env=environment, check=True, capture_output=True)
    made = (tmp_path / "made").read_text().splitlines() if calls else []
    assert made == ["-m venv --clear .venv"] * calls
    assert (tmp_path / ".venv" / "ready").exists()


WITHOUT_VENV = """#!/bin/sh
case "$*" in
*ensurepip* | *"-m venv"*) [ -e installed ] && mkdir -p .venv/bin && cp stand-in .venv/bin/python && cp stand-in .venv/bin/uv || exit 1 ;;
*"print(f"*) echo python3.13-venv ;;
--version) echo uv VERSION ;;
esac
"""
NOISY_APT = """#!/bin/sh
echo "debconf: delaying package configuration" >&2
case "$*" in *python3.13-venv*) touch installed ;; esac
"""


@pytest.mark.parametrize(
    ("user", "apt", "code", "said"),
    [
        (1000, NOISY_APT, 1, "python's venv module is missing: install it (Debian, Ubuntu: apt-get install python3.13-venv) and repeat\n"),
        (0, None, 1, "python's venv module is missing: install it (Debian, Ubuntu: apt-get install python3.13-venv) and repeat\n"),
        (0, "#!/bin/sh\necho 'E: no network' >&2; exit 100\n", 1, "python's venv module is missing: install it"),
        (0, NOISY_APT, 0, ""),
    ],
    ids=["an ordinary user", "root without apt", "root without network", "root"],
)
def test_a_missing_venv_module_is_one_line_or_is_installed_without_noise(
    user: int, apt: str | None, code: int, said: str, tmp_path: Path
) -> None:
    version = re.search(r"^UV_VERSION=(\S+)$", SCRIPT.read_text(), re.MULTILINE)
    assert version is not None
    scripts_in(tmp_path)
    program(tmp_path / "stand-in", WITHOUT_VENV.replace("VERSION", version[1]))
    program(tmp_path / "bin" / "id", f"#!/bin/sh\necho {user}\n")
    if apt is not None:
        program(tmp_path / "bin" / "apt-get", apt)
    for name in ("bash", "cp", "cut", "dirname", "grep", "mkdir", "sh", "sort", "tail", "touch"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "missing")
    environment = {"PATH": str(tmp_path / "bin"), "PYTHON": str(tmp_path / "stand-in")}
    done = subprocess.run(
        ["bash", tmp_path / "scripts" / "bootstrap.sh"], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == (1 if code else 0)

"""scripts/bootstrap.sh, with stand-ins for Python and uv: what an interrupted run left is made again."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "bootstrap.sh"

PYTHON = """#!/bin/sh
case "$*" in
*"-m venv"*)
  echo "$@" >>made
  mkdir -p .venv/bin && printf '#!/bin/sh\\n' >.venv/bin/python && printf '#!/bin/sh\\necho uv VERSION\\n' >.venv/bin/uv
  chmod +x .venv/bin/*
  ;;
esac
"""


@pytest.mark.parametrize(("left", "calls"), [(None, 1), ("exit 1", 1), ("exit 0", 0)])
def test_an_environment_without_pip_is_made_again_and_a_whole_one_is_kept(left: str | None, calls: int, tmp_path: Path) -> None:
    version = re.search(r"^UV_VERSION=(\S+)$", SCRIPT.read_text(), re.MULTILINE)
    assert version is not None
    script = PYTHON.replace("VERSION", version[1])
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    programs = {"stand-in": script}
    if left is not None:
        programs |= {".venv/bin/python": f"#!/bin/sh\n{left}\n", ".venv/bin/uv": f"#!/bin/sh\necho uv {version[1]}\n"}
    for name, text in programs.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    environment = {**os.environ, "PYTHON": str(tmp_path / "stand-in")}
    subprocess.run(["bash", tmp_path / "scripts" / "bootstrap.sh"], env=environment, check=True, capture_output=True)
    made = (tmp_path / "made").read_text().splitlines() if calls else []
    assert made == ["-m venv --clear .venv"] * calls
    assert (tmp_path / ".venv" / "ready").exists()

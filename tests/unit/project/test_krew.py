"""The plugin as krew installs it: an archive that its manifest describes, by krew's rules for manifests."""

import hashlib
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
URI = "https://releases.example/kubectl-fairlead.tar.gz"


def test_the_manifest_describes_the_archive(tmp_path: Path) -> None:
    wheel = tmp_path / "fairlead-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    out = tmp_path / "out"
    command = [sys.executable, str(ROOT / "scripts" / "krew_plugin.py"), str(wheel), str(out), URI, "https://fairlead.example"]
    subprocess.run(command, check=True)
    manifest = yaml.safe_load((out / "fairlead.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    spec = manifest["spec"]
    assert (manifest["metadata"]["name"], spec["version"], spec["homepage"]) == ("fairlead", "v0.1.0", "https://fairlead.example")
    assert re.fullmatch(r"[^.]{1,50}", spec["shortDescription"]), "krew's index wants at most 50 characters and no full stop"
    [platform] = spec["platforms"]
    assert (platform["uri"], platform["sha256"]) == (URI, hashlib.sha256((out / "kubectl-fairlead.tar.gz").read_bytes()).hexdigest())
    with tarfile.open(out / "kubectl-fairlead.tar.gz") as archive:
        members = {member.name: member for member in archive.getmembers()}
    assert {platform["bin"], wheel.name, "LICENSE"} == set(members)
    assert members[platform["bin"]].mode & 0o111


def test_the_launcher_runs_the_wheel_beside_it_in_an_environment_that_is_made_once(tmp_path: Path) -> None:
    home, here = tmp_path / "data" / "kubectl-fairlead" / "fairlead-0.1.0", tmp_path / "plugin"
    here.mkdir()
    (here / "fairlead-0.1.0.whl").touch()
    launcher = here / "kubectl-fairlead"
    launcher.write_bytes((ROOT / "cli" / "krew" / "kubectl-fairlead").read_bytes())
    (home / "bin").mkdir(parents=True)
    (home / "ready").touch()
    python = home / "bin" / "python"
    python.write_text('#!/bin/sh\necho "ran $@"\n')
    for path in (launcher, python):
        path.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    ran = subprocess.run([str(launcher), "status", "chat"], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "ran -m fairlead_cli.kubectl.main status chat\n"


def test_without_python_the_launcher_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "fairlead-0.1.0.whl").touch()
    (tmp_path / "bin").mkdir()
    for tool in ("readlink", "dirname", "basename", "ls", "sh", "touch"):
        (tmp_path / "bin" / tool).symlink_to(next(folder for folder in (Path("/usr/bin"), Path("/bin")) if (folder / tool).exists()) / tool)
    launcher = tmp_path / "kubectl-fairlead"
    launcher.write_bytes((ROOT / "cli" / "krew" / "kubectl-fairlead").read_bytes())
    launcher.chmod(0o755)
    environment = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}
    failed = subprocess.run(["/bin/sh", str(launcher)], env=environment, capture_output=True, text=True, check=False)
    assert failed.returncode == 1 and "it needs Python 3.11 or newer with venv" in failed.stderr.splitlines()[-1]

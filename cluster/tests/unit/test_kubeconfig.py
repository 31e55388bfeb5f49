"""Reading kubeconfigs, including unusual ones."""

from pathlib import Path

import pytest
import yaml

from processkube.errors import ProcesskubeError
from processkube.kubeconfig import read_kubeconfig


def write(folder: Path, *, cluster: dict[str, object] | None = None, user: dict[str, object] | None = None, current: str = "here") -> Path:
    path = folder / "config"
    document = {
        "current-context": current,
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster or {"server": "http://127.0.0.1:1/"}}],
        "users": [{"name": "u", "user": user or {"token": "t"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def test_server_and_token_of_the_current_context_are_taken(tmp_path: Path) -> None:
    connection = read_kubeconfig(write(tmp_path))
    assert (connection.server, connection.token, connection.tls) == ("http://127.0.0.1:1", "t", None)


def test_trust_can_be_switched_off_where_the_file_says_so(tmp_path: Path) -> None:
    connection = read_kubeconfig(write(tmp_path, cluster={"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}))
    assert connection.tls is not None
    assert not connection.tls.check_hostname


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"current": "elsewhere"}, "no usable current context"),
        ({"user": {"exec": {"command": "x"}}}, r"users\[\]\.user\.exec is not supported"),
        ({"cluster": {"server": "https://h", "certificate-authority-data": "bm9uZQ=="}}, "its certificates cannot be used"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(ProcesskubeError, match=complaint):
        read_kubeconfig(write(tmp_path, **fields))  # type: ignore[arg-type]  # a table of keyword arguments


def test_a_missing_file_is_refused_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(ProcesskubeError, match=r"nowhere: cannot be read \(No such file"):
        read_kubeconfig(tmp_path / "nowhere")

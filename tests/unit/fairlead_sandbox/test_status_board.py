"""The output of `fairlead status` for a sandbox that runs."""

import io
import os
from pathlib import Path

from click.testing import CliRunner
from rich.console import Console

from fairlead_sandbox.commands import status
from fairlead_sandbox.state_directory import ProcessNote, RunNote, StateDirectory
from fairlead_sandbox.status_board import show
from processkube.identities import identity_of


def test_the_command_that_signs_in_is_that_of_the_sandbox_shown(tmp_path: Path) -> None:
    me = identity_of(os.getpid())
    assert me is not None
    directory = StateDirectory(root=tmp_path)
    urls = {"api": "http://127.0.0.1:8080"}
    directory.write_run(RunNote(phase="ready", supervisor_pid=me.pid, supervisor_started_ticks=me.started_ticks, urls=urls))
    text = io.StringIO()
    assert show(directory, Console(file=text, width=60))
    assert f"http://127.0.0.1:8080  (dashboard: fairlead login --state-dir {tmp_path})\n" in text.getvalue()


def test_a_kubeconfig_is_named_only_where_there_is_one(tmp_path: Path) -> None:
    me = identity_of(os.getpid())
    assert me is not None
    directory = StateDirectory(root=tmp_path)
    directory.write_run(RunNote(phase="ready", supervisor_pid=me.pid, supervisor_started_ticks=me.started_ticks))
    shown = []
    for _ in range(2):
        text = io.StringIO()
        assert show(directory, Console(file=text))
        shown.append("kubeconfig" in text.getvalue())
        directory.kubeconfig.touch()
    assert shown == [False, True]


def test_what_a_process_said_is_shown_as_it_said_it(tmp_path: Path) -> None:
    problem = "no such file [/etc/x] of :car:"
    StateDirectory(root=tmp_path).write_run(RunNote(phase="failed", supervisor_pid=1, supervisor_started_ticks=1, urls={}, problem=problem))
    found = CliRunner().invoke(status, ["--state-dir", str(tmp_path)])
    assert (found.exit_code, problem in found.output) == (1, True)


def test_processes_with_long_names_are_whole_in_a_narrow_window(tmp_path: Path) -> None:
    me = identity_of(os.getpid())
    assert me is not None
    directory = StateDirectory(root=tmp_path)
    names = [f"router-{number}-of-the-pool-chat-with-a-long-name" for number in (0, 1)]
    processes = tuple(
        ProcessNote(name=name, state="ready", pid=me.pid, started_ticks=me.started_ticks, restarts=0, detail="it answers") for name in names
    )
    directory.write_run(RunNote(phase="ready", supervisor_pid=me.pid, supervisor_started_ticks=me.started_ticks, processes=processes))
    text = io.StringIO()
    assert show(directory, Console(file=text, width=40))
    assert [line.split()[0] for line in text.getvalue().splitlines() if line.startswith("router")] == names

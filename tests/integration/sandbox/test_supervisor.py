"""The supervisor with toy processes: order, restarts, failing starts and clean stops."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from fairlead_sandbox.errors import SandboxError, StartFailed
from fairlead_sandbox.log_streams import Console
from fairlead_sandbox.processes import PrintedLine, ProcessSpec, Started, Step
from fairlead_sandbox.state_directory import ProcessNote
from fairlead_sandbox.supervisor import Supervisor
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.backoff import Backoff
from processkube.identities import identity_of

SOON = Backoff(first_seconds=0.02, longest_seconds=0.05, forgive_after_seconds=30.0)
FOREVER = "import time; print('ready now', flush=True); time.sleep(600)"


def toy(name: str, code: str = FOREVER, **fields: object) -> ProcessSpec:
    return ProcessSpec(name=name, command=(sys.executable, "-S", "-c", code), readiness=PrintedLine(prefix="ready"), **fields)  # type: ignore[arg-type]  # test builder


def supervise(folder: Path, *nodes: ProcessSpec | Step, output: StringIO | None = None) -> Supervisor:
    console = Console(output, names=tuple(node.name for node in nodes), coloured=False)
    return Supervisor(nodes, logs=folder, console=console, changed=lambda: None, backoff=SOON)


def note_of(supervisor: Supervisor, name: str) -> ProcessNote:
    return next(note for note in supervisor.notes if note.name == name)


async def eventually(claim: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    async with asyncio.timeout(seconds):
        while not claim():
            await asyncio.sleep(0.02)


async def test_what_is_needed_is_ready_before_its_dependants_start(tmp_path: Path) -> None:
    order: list[str] = []

    async def migrate() -> None:
        order.append("step")

    late = f"import time; time.sleep(0.3); open({str(tmp_path / 'base')!r}, 'w').close(); {FOREVER}"
    depends = f"import os; print('base is there:', os.path.exists({str(tmp_path / 'base')!r})); {FOREVER}"
    output = StringIO()
    supervisor = supervise(
        tmp_path, toy("top", depends, needs=("step",)), Step(name="step", run=migrate, needs=("base",)), toy("base", late), output=output
    )
    await supervisor.start()
    try:
        assert order == ["step"]
        assert "top  | base is there: True" in output.getvalue()
        assert [note.name for note in supervisor.notes] == ["base", "step", "top"]
        assert {note.state for note in supervisor.notes} == {"ready", "done"}
    finally:
        await supervisor.stop()
    assert {note.state for note in supervisor.notes} == {"stopped", "done"}


async def test_a_killed_process_is_started_again_and_the_restart_is_counted(tmp_path: Path) -> None:
    supervisor = supervise(tmp_path, toy("engine"))
    await supervisor.start()
    try:
        first = note_of(supervisor, "engine").pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: note_of(supervisor, "engine").state == "ready" and note_of(supervisor, "engine").pid not in {None, first})
        assert note_of(supervisor, "engine").restarts == 1
        assert "signal SIGKILL" in (tmp_path / "engine.log").read_text()
    finally:
        await supervisor.stop()


async def test_a_process_that_never_becomes_ready_fails_the_start_with_its_last_words(tmp_path: Path) -> None:
    supervisor = supervise(tmp_path, toy("api", "import sys; print('cannot bind 8080'); sys.exit(3)"), toy("other"))
    try:
        with pytest.raises(StartFailed, match=r"api ended 5 times .* exit code 3; it last said: cannot bind 8080 \(log: .*api\.log\)"):
            await supervisor.start()
    finally:
        await supervisor.stop()
    assert note_of(supervisor, "other").pid is None


async def test_a_silent_process_fails_the_start_after_its_timeout(tmp_path: Path) -> None:
    supervisor = supervise(tmp_path, toy("mute", "import time; time.sleep(600)", start_timeout_seconds=0.4))
    try:
        with pytest.raises(StartFailed, match=r"mute was not ready within [\d.]+ s"):
            await supervisor.start()
    finally:
        await supervisor.stop()


async def test_a_command_that_does_not_exist_fails_the_start_in_one_line(tmp_path: Path) -> None:
    supervisor = supervise(tmp_path, ProcessSpec(name="ghost", command=("/no/such/program",), readiness=Started()))
    try:
        with pytest.raises(StartFailed, match=r"ghost ended 5 times before it was ready, last with cannot start: .*No such file"):
            await supervisor.start()
    finally:
        await supervisor.stop()


async def test_a_failing_step_fails_the_start(tmp_path: Path) -> None:
    async def refuse() -> None:
        raise SandboxError("no disk")

    supervisor = supervise(tmp_path, toy("base"), Step(name="format", run=refuse, needs=("base",)))
    try:
        with pytest.raises(StartFailed, match="format failed: no disk"):
            await supervisor.start()
    finally:
        await supervisor.stop()


async def test_stopping_goes_in_reverse_order_and_kills_what_does_not_listen(tmp_path: Path) -> None:
    def recorder(name: str) -> str:
        return (
            "import signal, sys, time\n"
            f"def bye(*_):\n    open({str(tmp_path / 'order')!r}, 'a').write('{name} '); sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, bye); print('ready', flush=True)\n"
            "while True: time.sleep(1)"
        )

    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
    supervisor = supervise(
        tmp_path,
        toy("base", recorder("base")),
        toy("middle", recorder("middle"), needs=("base",)),
        toy("top", recorder("top"), needs=("middle",)),
        toy("deaf", deaf, needs=("base",), stop_grace_seconds=0.3),
    )
    await supervisor.start()
    pids = [note.pid for note in supervisor.notes]
    await supervisor.stop()
    assert (tmp_path / "order").read_text().split() == ["top", "middle", "base"]
    assert all(pid is not None and identity_of(pid) is None for pid in pids)


async def test_a_stop_during_the_start_leaves_nothing(tmp_path: Path) -> None:
    supervisor = supervise(tmp_path, toy("slow", "import time; time.sleep(600)"), toy("after", needs=("slow",)))
    starting = asyncio.create_task(supervisor.start())
    await eventually(lambda: note_of(supervisor, "slow").pid is not None)
    pid = note_of(supervisor, "slow").pid
    starting.cancel()
    await supervisor.stop()
    assert pid is not None
    assert identity_of(pid) is None
    assert note_of(supervisor, "after").state == "waiting"


def test_a_circle_in_the_table_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="a needs b needs a, which is a cycle"):
        supervise(tmp_path, toy("a", needs=("b",)), toy("b", needs=("a",)))


LONELY_SUPERVISOR = """
import asyncio, signal, sys
from pathlib import Path
from fairlead_sandbox.log_streams import Console
from fairlead_sandbox.processes import PrintedLine, ProcessSpec
from fairlead_sandbox.supervisor import Supervisor

deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"

async def main():
    table = [ProcessSpec(name=name, command=(sys.executable, "-S", "-c", deaf), readiness=PrintedLine(prefix="ready")) for name in "abc"]
    console = Console(None, names=(), coloured=False)
    supervisor = Supervisor(table, logs=Path(sys.argv[1]), console=console, changed=lambda: None)
    await supervisor.start()
    print(*(note.pid for note in supervisor.notes), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_children_do_not_outlive_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    lonely = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LONELY_SUPERVISOR, str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )
    assert lonely.stdout is not None
    pids = [int(word) for word in (await lonely.stdout.readline()).split()]
    assert len(pids) == 3
    assert all(identity_of(pid) is not None for pid in pids)
    lonely.kill()
    await lonely.wait()
    await eventually(lambda: all(identity_of(pid) is None for pid in pids))

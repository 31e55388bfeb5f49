"""`fairlead up`: one run of the sandbox, from taking the lock to the end of the last process."""

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from fairlead_process.environment import read
from fairlead_sandbox.cluster_setup import ClusterSetup
from fairlead_sandbox.ending import sweep
from fairlead_sandbox.errors import AlreadyRunning, SandboxError, StartFailed
from fairlead_sandbox.identities import MARK, identity_of
from fairlead_sandbox.kubeconfig import read_kubeconfig
from fairlead_sandbox.log_streams import Console
from fairlead_sandbox.ports import HOST, PortClaims, claim_ports, first_free
from fairlead_sandbox.postgres import check_external, embedded_server
from fairlead_sandbox.process_table import SandboxPlan, preferred_ports, process_table, router_names
from fairlead_sandbox.processes import ProcessSpec
from fairlead_sandbox.secret_tokens import load_or_create
from fairlead_sandbox.settings import SandboxSettings, strange
from fairlead_sandbox.state_directory import RunNote, StateDirectory
from fairlead_sandbox.summary import StartReport, activate_script, make_login_link, render
from fairlead_sandbox.supervisor import Supervisor

ENGINE_PORT = 8000
UNUSED_LOOPBACK = "127.39.255.254"
"""A loopback address on which no process listens.

If a port is taken on it, the process that took the port listens on every address.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """The options of `fairlead up`."""

    state_dir: Path
    routers: int = 2
    demo: bool = True
    load: bool = True
    detached: bool = False


class SandboxRun:
    """One run. `output` gets progress, summary and the merged log; it is None when nobody watches (detached)."""

    def __init__(self, options: UpOptions, environment: Mapping[str, str], output: TextIO | None) -> None:
        self._options = options
        self._environment = environment
        self._directory = StateDirectory(root=options.state_dir)
        self._output = output
        self._coloured = output is not None and output.isatty() and "NO_COLOR" not in environment
        self._note = RunNote(phase="starting")
        self._supervisor: Supervisor | None = None
        self._claims: PortClaims | None = None
        self._shown: set[str] = set()
        self._notices: list[str] = []
        self._began = time.monotonic()

    async def run(self) -> None:
        """Start everything, serve until SIGINT or SIGTERM, stop everything.

        Raises AlreadyRunning when the directory is held, SandboxError or StartFailed when the start fails;
        nothing is left running then.
        """
        if sys.platform != "linux":
            raise SandboxError(
                "fairlead up needs Linux: each instance gets a loopback address of its own; use a container or a virtual machine"
            )
        self._directory.create()
        lock = self._directory.lock()
        if lock is None:
            raise AlreadyRunning(_already_running(self._directory))
        try:
            await self._run_locked()
        finally:
            if self._claims is not None:
                self._claims.release()
            lock.release()

    async def _run_locked(self) -> None:
        me = identity_of(os.getpid())
        previous = self._directory.read_run()
        sweep(self._directory)  # ends processes that a killed supervisor may have left
        self._note = replace(
            self._note,
            supervisor_pid=os.getpid(),
            supervisor_started_ticks=me.started_ticks if me else None,
            ports=previous.ports if previous else {},
        )
        self._save()
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        try:
            plan = await self._plan()
        except SandboxError as problem:
            self._save(phase="failed", problem=str(problem))
            raise
        nodes = process_table(plan)
        self._notices += strange(self._environment, [node for node in nodes if isinstance(node, ProcessSpec)])
        console = Console(None, names=tuple(node.name for node in nodes), coloured=self._coloured)
        environment = process_environment(self._environment, self._directory)
        self._supervisor = Supervisor(nodes, logs=self._directory.logs, console=console, changed=self._changed, environment=environment)
        starting = asyncio.create_task(self._supervisor.start())
        stopping = asyncio.create_task(stop.wait())
        failure = ""
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                await self._announce(plan)
                console.open(self._output)
                failing = asyncio.create_task(self._supervisor.until_failure())
                await asyncio.wait({failing, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if failing.done():
                    failing.result()
                failing.cancel()
        except StartFailed as problem:
            failure = str(problem)
            raise
        finally:
            starting.cancel()
            stopping.cancel()
            self._say("stopping …")
            self._save(phase="stopping")
            await self._supervisor.stop()
            sweep(self._directory)
            self._save(
                phase="failed" if failure else "stopped", problem=failure, summary="", supervisor_pid=None, supervisor_started_ticks=None
            )
            self._say("stopped; nothing is left running")

    async def _plan(self) -> SandboxPlan:
        """Choose ports, secrets and database. Raises SandboxError when one of them is not to be had."""
        options, directory = self._options, self._directory
        wishes = preferred_ports(options.routers)
        self._claims = claim_ports({name: self._note.ports.get(name, port) for name, port in wishes.items()})
        engine_port = first_free("engine", ENGINE_PORT, UNUSED_LOOPBACK)  # not claimed: sandboxes share it, on other addresses
        ports = self._claims.ports | {"engine": engine_port}
        for name, port in ports.items():
            if name in wishes and port != wishes[name] and self._note.ports.get(name) != port:
                self._notices.append(f"port {wishes[name]} is taken: {name} listens on {port}")
        if ports["engine"] != ENGINE_PORT:
            self._notices.append(
                f"port {ENGINE_PORT} is taken on every address: demo engines use {ports['engine']}, your pools need spec.engine.port"
            )
        settings = read(SandboxSettings, self._environment)
        external = settings.database_url
        postgres = None if external else embedded_server(data=directory.postgres_data, socket_directory=directory.socket_directory)
        cluster = Path(settings.kubeconfig) if settings.kubeconfig else None
        setup = ClusterSetup(directory, engine_port=ports["engine"], cluster=cluster)
        plan = SandboxPlan(
            directory=directory,
            ports=ports,
            routers=options.routers,
            tokens=load_or_create(directory.secrets),
            database_url=postgres.url if postgres else await check_external(external),
            postgres=postgres,
            own_kubernetes=cluster is None,
            node_grace_seconds=settings.node_grace_seconds,
            demo=options.demo,
            load=options.load,
            publish_kubeconfig=setup.publish_kubeconfig,
            apply_definitions=setup.apply_definitions,
            apply_demo=setup.apply_demo,
        )
        gateways = dict(zip(router_names(options.routers), plan.router_urls, strict=True))
        own = f"https://{HOST}:{ports['kubernetes-api']}"
        kubernetes = {"kubernetes-api": own if cluster is None else read_kubeconfig(cluster).server}
        self._note = replace(self._note, ports=ports, urls={"api": plan.api_url, **gateways, **kubernetes, **plan.metrics_urls})
        self._save()
        return plan

    async def _announce(self, plan: SandboxPlan) -> None:
        try:
            link = await make_login_link(plan.api_url, plan.tokens.admin)
        except SandboxError as problem:
            raise StartFailed(str(problem)) from None
        facts = StartReport(
            dashboard=plan.api_url,
            login_link=link,
            gateways=plan.router_urls,
            metrics=tuple(plan.metrics_urls.values()),
            kubeconfig=self._directory.kubeconfig,
            state_dir=self._directory.root,
            demo=plan.demo,
            detached=self._options.detached,
            activate=activate_script(),
            notices=tuple(self._notices),
        )
        width = shutil.get_terminal_size((100, 30)).columns
        self._say(f"everything is ready after {time.monotonic() - self._began:.1f} s")
        self._save(phase="ready", summary=render(facts, width=width, coloured=False))
        self._say("\n" + render(facts, width=width, coloured=self._coloured))

    def _changed(self) -> None:
        """Called when the supervisor's notes have changed: saves them, and shows the processes that became ready."""
        if self._supervisor is None:
            return
        self._save(processes=self._supervisor.notes)
        for note in self._supervisor.notes:
            if note.state in {"ready", "done"} and note.name not in self._shown:
                self._shown.add(note.name)
                if self._note.phase == "starting":
                    self._say(f"  {time.monotonic() - self._began:5.1f} s  {note.name} {note.state}")

    def _save(self, **changes: object) -> None:
        self._note = replace(self._note, **changes)  # type: ignore[arg-type]  # the callers name RunNote's own fields
        try:
            self._directory.write_run(self._note)
        except OSError as problem:  # a full disk must not stop the processes that still run
            self._say(f"{self._directory.run_file} cannot be written: {problem.strerror}")

    def _say(self, text: str) -> None:
        if self._output is None:
            return
        try:
            print(text, file=self._output, flush=True)
        except (BrokenPipeError, ValueError):
            self._output = None


def process_environment(inherited: Mapping[str, str], directory: StateDirectory) -> dict[str, str]:
    """The environment of every process: the user's, with the sandbox's mark, and with no proxy between the parts."""
    direct = ",".join(part for part in (inherited.get("NO_PROXY") or inherited.get("no_proxy"), "127.0.0.1,localhost") if part)
    return {**inherited, MARK: str(directory.root), "PYTHONUNBUFFERED": "1", "NO_PROXY": direct, "no_proxy": direct}


def _already_running(directory: StateDirectory) -> str:
    note = directory.read_run()
    where = ", ".join(f"{name} {url}" for name, url in note.urls.items()) if note else ""
    return f"a sandbox is already running in {directory.root} ({where or 'still starting'}); `fairlead status` shows it, `fairlead down` stops it"

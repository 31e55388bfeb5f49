"""One run of `fairlead serve`: its files, ports and processes, and the first reports of the engines."""

import asyncio
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from fairlead.errors import InvalidInput
from fairlead_api.plans.kinds.engines import base_url
from fairlead_process.environment import read
from fairlead_process.policies import installed_policies
from fairlead_sandbox.ports import HOST, PortClaims, claim_ports, is_free
from fairlead_sandbox.postgres import check_external, embedded_server
from fairlead_sandbox.processes import ProcessSpec
from fairlead_sandbox.runs import PreparedRun, SupervisedRun
from fairlead_sandbox.secret_tokens import load_or_create
from fairlead_sandbox.settings import SandboxSettings, strange
from fairlead_sandbox.state_directory import StateDirectory
from fairlead_sandbox.summary import make_login_link
from fairlead_serve.pool_files import PoolFile, read_pool_file
from fairlead_serve.probing import EngineFindings, Prober
from fairlead_serve.process_table import PREFERRED_PORTS, ROUTER, ServePlan, process_table
from fairlead_serve.state_files import StateFiles, own_pool_file
from fairlead_serve.summary import ServeReport, render, waiting_notices


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of `fairlead serve`. A port of None means any free port; a given port must be free."""

    state_dir: Path
    engines: tuple[str, ...] = ()
    prefills: tuple[str, ...] = ()
    decodes: tuple[str, ...] = ()
    config: Path | None = None
    host: str = "127.0.0.1"
    port: int | None = None
    dashboard_port: int | None = None


class ServeRun:
    """One run of `fairlead serve`. `output`: where progress, summary and the merged log are printed."""

    def __init__(self, options: ServeOptions, environment: Mapping[str, str], output: TextIO | None) -> None:
        self._options = options
        self._environment = environment
        self._directory = StateDirectory(root=options.state_dir)
        self._run = SupervisedRun(self._directory, environment, output, self._prepare)

    async def run(self) -> None:
        """Start everything, serve until SIGINT or SIGTERM, stop everything.

        Raises InvalidInput for wrong input, SandboxError for a failed start, after which nothing is left running.
        """
        check_options(self._options)
        await self._run.run()

    async def _prepare(self, known: Mapping[str, int]) -> PreparedRun:
        claims = claimed_ports(self._options, known)  # before the pool's file is written: a refused start changes no pool
        try:
            files, file = pool_of(self._options, self._directory.root)
            findings = await look_at([entry.url for entry in file.pool.engines])
            forget_other_model(files, file, findings)
            return await self._planned(claims, files, file, findings, known)
        except BaseException:
            claims.release()
            raise

    async def _planned(
        self, claims: PortClaims, files: StateFiles, file: PoolFile, findings: tuple[EngineFindings, ...], known: Mapping[str, int]
    ) -> PreparedRun:
        directory, external = self._directory, read(SandboxSettings, self._environment).database_url
        postgres = None if external else embedded_server(data=directory.postgres_data, socket_directory=directory.socket_directory)
        plan = ServePlan(
            directory=directory,
            files=files,
            host=self._options.host,
            ports=claims.ports,
            tokens=load_or_create(directory.secrets),
            database_url=postgres.url if postgres else await check_external(external),
            postgres=postgres,
        )
        nodes = process_table(plan)
        asked = _asked_ports(self._options)
        notices = [
            f"port {port} is taken: {name} listens on {claims.ports[name]}"
            for name, port in PREFERRED_PORTS.items()
            if claims.ports[name] != port and known.get(name) != claims.ports[name] and name not in asked
        ]
        notices += strange(self._environment, [node for node in nodes if isinstance(node, ProcessSpec)])
        urls = {
            "api": plan.api_url,
            ROUTER: plan.gateway_url,
            f"metrics-of-{ROUTER}": plan.metrics_url,
            "metrics-of-source": plan.source_metrics_url,
        }
        summary = partial(self._summary, plan, file, findings, notices)
        return PreparedRun(nodes=nodes, ports=claims.ports, urls=urls, claims=claims, summary=summary)

    async def _summary(
        self, plan: ServePlan, file: PoolFile, findings: tuple[EngineFindings, ...], notices: Sequence[str]
    ) -> Callable[[bool], str]:
        memory = plan.files.read_memory()
        told = next((one.models[0] for one in findings if one.models), None)
        model = memory.model if memory is not None else file.pool.model or told
        report = ServeReport(
            gateway=plan.gateway_url,
            dashboard=plan.api_url,
            login_link=await make_login_link((plan.api_url,), plan.tokens.admin),
            metrics=f"{plan.metrics_url} (gateway), {plan.source_metrics_url} (source)",
            pool=str(file.pool.key),
            model=model,
            pool_file=plan.files.pool_file,
            is_ours=plan.files.is_ours,
            state_dir=self._directory.root,
            findings=findings,
            notices=(*waiting_notices(findings, model, plan.files.pool_file), *notices),
        )
        width = shutil.get_terminal_size((100, 30)).columns
        return lambda coloured: render(report, width=width, coloured=coloured)


def check_options(options: ServeOptions) -> None:
    """Check engines, files and host, without writing anything. Raises InvalidInput if they are invalid."""
    for option, urls in _named(options):
        if urls and options.config is not None:
            raise InvalidInput(option, urls[0], f"write it into {options.config}, or leave --config out")
        for url in urls:
            try:
                base_url(url)
            except ValueError as problem:
                raise InvalidInput(option, url, str(problem)) from None
    _read_pool(options, options.state_dir)
    _check_host(options.host)


def _check_host(host: str) -> None:
    remedy = "write an IPv4 address of this machine, or 0.0.0.0 for all of them"
    if not host or ":" in host:
        raise InvalidInput("--host", host, f"{remedy} (IPv6 is not supported)" if host else remedy)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        try:
            trial.bind((host, 0))
        except (OSError, UnicodeError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else "it is not a host name"
            raise InvalidInput("--host", host, f"{remedy} ({why})") from None


def claimed_ports(options: ServeOptions, known: Mapping[str, int]) -> PortClaims:
    """Claim the ports to listen on. A part without a given port gets its port of the last run, or a free port.

    Raises InvalidInput, and claims nothing, if a given port is not available.
    """
    asked = _asked_ports(options)
    first = {name: port for name, (_, port) in asked.items()}  # so that no other part takes them
    wishes = first | {name: known.get(name, port) for name, port in PREFERRED_PORTS.items() if name not in asked}
    for name, (option, port) in asked.items():
        if not is_free(port, options.host if name == ROUTER else HOST):
            raise _taken(option, port)
    claims = claim_ports(wishes)
    for name, (option, port) in asked.items():
        if claims.ports[name] != port:
            claims.release()
            raise _taken(option, port)
    return claims


def _asked_ports(options: ServeOptions) -> dict[str, tuple[str, int]]:
    """Return the option and the port of each part whose port was given, by the part's name."""
    options_of = {ROUTER: ("--port", options.port), "api": ("--dashboard-port", options.dashboard_port)}
    return {name: (option, port) for name, (option, port) in options_of.items() if port is not None}


def _taken(option: str, port: int) -> InvalidInput:
    return InvalidInput(option, port, "the port is taken; write another port, or leave the option out to use a free port")


def pool_of(options: ServeOptions, root: Path) -> tuple[StateFiles, PoolFile]:
    """Return the pool's files, and the parsed pool file: the file that the user gave or, without one, Fairlead's own
    file. The engines of the command line are written into Fairlead's own file.

    Raises InvalidInput, also if there are no engines at all.
    """
    files, file = _read_pool(options, root)
    if any(urls for _, urls in _named(options)):
        with files.writing():
            files.write_pool(file.document)
    return files, file


def _read_pool(options: ServeOptions, root: Path) -> tuple[StateFiles, PoolFile]:
    policies = installed_policies()
    if options.config is not None:
        files = StateFiles(root=root, pool_file=options.config.absolute())
        return files, files.read_pool(policies)
    files = StateFiles(root=root, pool_file=own_pool_file(root))
    kept: dict[str, Any] = dict(files.read_pool(policies).document) if files.pool_file.exists() else {}
    engines = _engines(options, kept.get("engines") or ())
    if not engines and not kept:
        raise InvalidInput("--engine", None, "name an engine, such as --engine http://127.0.0.1:8000, or a file with --config")
    if engines:
        kept["engines"] = engines
        if options.decodes:
            kept.setdefault("engine", {}).setdefault("type", "vllm")
    return files, read_pool_file(kept, policies)


def _named(options: ServeOptions) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return each option for engines, with the engines that it names."""
    return (("--engine", options.engines), ("--prefill", options.prefills), ("--decode", options.decodes))


def _engines(options: ServeOptions, known: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the engines of the command line with their roles. An engine that is already in the file keeps its other
    fields.
    """
    entries = {base_url(str(entry["url"])): {name: value for name, value in entry.items() if name != "role"} for entry in known}
    found: dict[str, dict[str, Any]] = {}
    for option, urls in _named(options):
        role = {} if option == "--engine" else {"role": option.removeprefix("--")}
        for url in map(base_url, urls):
            found[url] = {**entries.get(url, {"url": url}), **role}
    return list(found.values())


async def look_at(urls: Sequence[str]) -> tuple[EngineFindings, ...]:
    """Return the reports of the engines about themselves; all engines are asked at the same time."""
    prober = Prober()
    try:
        return tuple(await asyncio.gather(*(prober.findings(url) for url in urls)))
    finally:
        await prober.close()


def forget_other_model(files: StateFiles, file: PoolFile, findings: Sequence[EngineFindings]) -> None:
    """Forget the pool of the last run if its model or its engine type has changed, because neither can change in a
    pool. The next round then starts a new pool.

    A model or type that the file sets is not compared. If no engine reports its models now, nothing is forgotten.
    """
    memory = files.read_memory()
    told = {model for one in findings for model in one.models}
    if memory is None or not told:
        return
    types = {one.engine_type for one in findings if one.models}
    other_model = file.pool.model is None and memory.model not in told
    if other_model or (file.pool.engine.type is None and memory.engine_type not in types):
        files.forget_memory()

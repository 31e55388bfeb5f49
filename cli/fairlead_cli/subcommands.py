"""The subcommands: the help line that `fairlead --help` prints without importing them, and how each is imported."""

from collections.abc import Callable
from dataclasses import dataclass

import click


@dataclass(frozen=True, slots=True, kw_only=True)
class Subcommand:
    """A subcommand and the function `load` that imports its command.

    `extra` names the extra of the distribution that installs what the command needs. Empty: no extra is needed.
    """

    help: str
    load: Callable[[], click.Command]
    extra: str = ""


def _up() -> click.Command:
    from fairlead_sandbox.commands import up

    return up


def _serve() -> click.Command:
    from fairlead_serve.commands import serve

    return serve


def _status() -> click.Command:
    from fairlead_sandbox.commands import status

    return status


def _logs() -> click.Command:
    from fairlead_sandbox.commands import logs

    return logs


def _login() -> click.Command:
    from fairlead_sandbox.commands import login

    return login


def _down() -> click.Command:
    from fairlead_sandbox.commands import down

    return down


def _replay() -> click.Command:
    from fairlead_simulator.replay.command import replay

    [url] = [one for one in replay.params if one.name == "urls"]
    url.default = _gateways
    return replay


def _gateways() -> tuple[str, ...]:
    from fairlead_cli.asking import gateways

    return gateways()


def _simulate() -> click.Command:
    from fairlead_simulator.simulate_command import simulate

    return simulate


def _engines() -> click.Command:
    from fairlead_cli.engines import engines

    return engines


def _traces() -> click.Command:
    from fairlead_simulator.traces_command import traces

    return traces


def _verify() -> click.Command:
    from fairlead_cli.verify import verify

    return verify


def _kv_events() -> click.Command:
    from fairlead_cli.kv_events.commands import kv_events

    return kv_events


def _pools() -> click.Command:
    from fairlead_cli.pools import pools

    return pools


def _change() -> click.Command:
    from fairlead_cli.changes import change

    return change


def _instances() -> click.Command:
    from fairlead_cli.instances import instances

    return instances


def _comments() -> click.Command:
    from fairlead_cli.comments import comments

    return comments


def _tasks() -> click.Command:
    from fairlead_cli.tasks import tasks

    return tasks


def _sessions() -> click.Command:
    from fairlead_cli.sessions import sessions

    return sessions


def _migrations() -> click.Command:
    from fairlead_cli.migrations import migrations

    return migrations


def _decisions() -> click.Command:
    from fairlead_cli.decisions import decisions

    return decisions


def _cost() -> click.Command:
    from fairlead_cli.cost import cost

    return cost


def _rejections() -> click.Command:
    from fairlead_cli.rejections import rejections

    return rejections


def _schedules() -> click.Command:
    from fairlead_cli.schedules import schedules

    return schedules


def _plans() -> click.Command:
    from fairlead_cli.plans import plans

    return plans


def _audit() -> click.Command:
    from fairlead_cli.audit import audit

    return audit


def _completion() -> click.Command:
    from fairlead_cli.completion import completion

    return completion


def _slo() -> click.Command:
    from fairlead_cli.slo import slo

    return slo


def _advice() -> click.Command:
    from fairlead_cli.advice import advice

    return advice


def _keys() -> click.Command:
    from fairlead_cli.keys import keys

    return keys


def _tokens() -> click.Command:
    from fairlead_cli.tokens import tokens

    return tokens


def _notices() -> click.Command:
    from fairlead_cli.notices import notices

    return notices


def _what_if() -> click.Command:
    from fairlead_cli.what_if import what_if

    return what_if


def _backup() -> click.Command:
    from fairlead_cli.backups.commands import backup

    return backup


def _restore() -> click.Command:
    from fairlead_cli.backups.commands import restore

    return restore


def _api() -> click.Command:
    from fairlead_host.__main__ import main

    return main


def _router() -> click.Command:
    from fairlead_router.main import main

    return main


def _operator() -> click.Command:
    from fairlead_operator.main import main

    return main


def _engine() -> click.Command:
    from fairlead_simulator.engine_server.command import engine

    return engine


SUBCOMMANDS: dict[str, Subcommand] = {
    "up": Subcommand(help="Start a whole Fairlead on this machine.", load=_up, extra="sandbox"),
    "serve": Subcommand(help="Put Fairlead in front of running engines.", load=_serve, extra="sandbox"),
    "status": Subcommand(help="Show the sandbox's processes.", load=_status, extra="sandbox"),
    "logs": Subcommand(help="Print the logs of the sandbox's processes or pods.", load=_logs, extra="sandbox"),
    "login": Subcommand(help="Print a new one-time link to the dashboard.", load=_login, extra="sandbox"),
    "down": Subcommand(help="Stop the sandbox.", load=_down, extra="sandbox"),
    "replay": Subcommand(help="Replay a trace's requests against a gateway.", load=_replay, extra="simulator"),
    "simulate": Subcommand(help="Compare policies on a trace, without any engine.", load=_simulate, extra="simulator"),
    "engines": Subcommand(
        help="List the simulator's engine models; fit one to a real engine, and show its error.", load=_engines, extra="simulator"
    ),
    "traces": Subcommand(help="Inspect, convert and generate traces.", load=_traces, extra="simulator"),
    "verify": Subcommand(help="Search the control API's records for contradictions.", load=_verify, extra="web"),
    "kv-events": Subcommand(help="Record an engine's KV events, and check them against its own counts.", load=_kv_events, extra="router"),
    "change": Subcommand(help="Change a pool by a plan, shown with its effect first, and undo it.", load=_change, extra="web"),
    "pools": Subcommand(help="List and show pools; roll back to a revision, pause or resume a rollout.", load=_pools, extra="web"),
    "instances": Subcommand(help="Show a pool's instances: state, load and cache.", load=_instances, extra="web"),
    "tasks": Subcommand(help="Show the cost of agents' tasks, trees of sessions, and think times.", load=_tasks, extra="web"),
    "sessions": Subcommand(help="Show which instance holds a session, and which held it before.", load=_sessions, extra="web"),
    "migrations": Subcommand(
        help="Show moves between instances, and whether they were faster than staying.", load=_migrations, extra="web"
    ),
    "decisions": Subcommand(help="Show why a request went to its instance.", load=_decisions, extra="web"),
    "cost": Subcommand(help="Show the cost of instances, and the clients that used them.", load=_cost, extra="web"),
    "rejections": Subcommand(help="Show refused requests by cause, and the remedies.", load=_rejections, extra="web"),
    "schedules": Subcommand(
        help="Show schedules' windows: open ones, next starts, and outcomes of past ones.", load=_schedules, extra="web"
    ),
    "plans": Subcommand(help="List, show, apply and undo plans.", load=_plans, extra="web"),
    "slo": Subcommand(help="Show a pool's SLO attainment and error budget, and the effect of other targets.", load=_slo, extra="web"),
    "advice": Subcommand(help="Show the pools' problems, their causes, and the plans that would help.", load=_advice, extra="web"),
    "keys": Subcommand(help="List, create and revoke API keys of the gateway's clients; show their use.", load=_keys, extra="web"),
    "tokens": Subcommand(help="List, create and revoke tokens of the control API.", load=_tokens, extra="web"),
    "notices": Subcommand(help="List, make, test and delete webhooks; show the notices sent to them.", load=_notices, extra="web"),
    "what-if": Subcommand(help="Try policies on a pool's recorded traffic, and apply the best one.", load=_what_if, extra="web"),
    "audit": Subcommand(help="Show who did what; verify that the log is unchanged.", load=_audit, extra="web"),
    "comments": Subcommand(help="List, add and delete comments on a pool's time or plans.", load=_comments, extra="web"),
    "backup": Subcommand(help="Write the database, and Fairlead's objects in the cluster, into a file.", load=_backup, extra="api"),
    "restore": Subcommand(help="Fill an empty database from a backup.", load=_restore, extra="api"),
    "completion": Subcommand(help="Print the completion script of a shell.", load=_completion),
    "api": Subcommand(help="Run the control API and the web UI.", load=_api, extra="api,web"),
    "router": Subcommand(help="Run a gateway.", load=_router, extra="router"),
    "operator": Subcommand(help="Run the Kubernetes operator.", load=_operator, extra="operator"),
    "engine": Subcommand(help="Run one simulated engine.", load=_engine, extra="simulator"),
}

"""The subcommands as data: where each is, and what `fairlead --help` says of it without importing it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClickCommand:
    """A `click.Command` called `attribute` in `module`."""

    module: str
    attribute: str
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleProgram:
    """A program of its own, run as `python -m module` with all further arguments, in this process' place."""

    module: str
    help: str


Subcommand = ClickCommand | ModuleProgram

SUBCOMMANDS: dict[str, Subcommand] = {
    "up": ClickCommand(module="fairlead_sandbox.commands", attribute="up", help="Start a whole Fairlead on this machine."),
    "status": ClickCommand(module="fairlead_sandbox.commands", attribute="status", help="Show the sandbox's processes."),
    "logs": ClickCommand(module="fairlead_sandbox.commands", attribute="logs", help="Print the logs of the sandbox's processes or pods."),
    "login": ClickCommand(module="fairlead_sandbox.commands", attribute="login", help="Print a new one-time link to the dashboard."),
    "down": ClickCommand(module="fairlead_sandbox.commands", attribute="down", help="Stop the sandbox."),
    "replay": ClickCommand(module="fairlead_simulator.replay.command", attribute="replay", help="Send a trace's requests to a gateway."),
    "simulate": ClickCommand(
        module="fairlead_simulator.simulate_command", attribute="simulate", help="Compare policies on a trace, without any engine."
    ),
    "traces": ClickCommand(module="fairlead_simulator.traces_command", attribute="traces", help="Look at traces, or make them."),
    "verify": ClickCommand(
        module="fairlead_cli.verify", attribute="verify", help="Look for contradictions in what the control API recorded."
    ),
    "api": ModuleProgram(module="fairlead_api.main", help="Run the control API and the web UI."),
    "router": ModuleProgram(module="fairlead_router.main", help="Run a gateway."),
    "operator": ModuleProgram(module="fairlead_operator.main", help="Run the Kubernetes operator."),
    "engine": ModuleProgram(module="fairlead_simulator.engine_server", help="Run one simulated engine."),
}

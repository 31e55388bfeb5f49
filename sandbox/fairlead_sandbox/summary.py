"""The summary shown when the sandbox is up: the URLs of its parts, and the next steps."""

import io
import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.box import ROUNDED
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fairlead_client.client import ControlApi
from fairlead_client.problems import ApiProblem, ApiUnreachable
from fairlead_client.resources.access import AccessRole, LoginLinkRequest
from fairlead_sandbox.command_lines import command_line
from fairlead_sandbox.demo import MODEL, POOL_NAME, POOL_NAMESPACE
from fairlead_sandbox.errors import SandboxError


@dataclass(frozen=True, slots=True, kw_only=True)
class StartReport:
    """The facts about a running sandbox that its summary shows."""

    dashboards: tuple[str, ...]
    login_link: str
    gateways: tuple[str, ...]
    metrics: tuple[str, ...]
    """URLs of the gateways' metrics pages."""
    kubeconfig: Path
    state_dir: Path
    demo: bool
    detached: bool
    activate: Path | None = None
    """Script that puts `fairlead` on the PATH; None if it is already there."""
    gateway_key: str | None = None
    """The key that clients of the gateways must send; None if they need no key."""
    notices: tuple[str, ...] = ()
    """Messages about surprising facts, such as ports that were taken."""


def activate_script() -> Path | None:
    """Return the script to source before `fairlead` can be typed; None when `fairlead` is on the PATH already."""
    script = Path(sys.prefix) / "bin" / "activate"
    return script if shutil.which("fairlead") is None and script.exists() else None


async def make_login_link(api_urls: Sequence[str], admin_token: str) -> str:
    """Make a link, at the first URL, that signs its first visitor in as admin; it is valid for ten minutes.

    Raises SandboxError if the API refuses or cannot be reached.
    """
    try:
        async with ControlApi(api_urls, admin_token) as api:
            link = await api.create_login_link(LoginLinkRequest(role=AccessRole.ADMIN))
    except (ApiProblem, ApiUnreachable) as problem:
        raise SandboxError(f"no login link from {', '.join(api_urls)}: {problem}") from None
    return f"{api_urls[0]}{link.path}"


def render(summary: StartReport, *, width: int, coloured: bool) -> str:
    """Return the summary as framed text.

    Lines that people copy are outside the frame, so that no border gets into the clipboard.
    """
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    facts.add_row("Dashboard", "  ".join(summary.dashboards))
    facts.add_row("Gateway", "  ".join(f"{url}/v1" for url in summary.gateways))
    facts.add_row("Metrics", "  ".join(summary.metrics))
    facts.add_row("State", str(summary.state_dir))
    for notice in summary.notices:
        facts.add_row("Note", notice)
    frame = Panel(facts, title="Fairlead is up", box=ROUNDED, expand=False, border_style="green")
    target = io.StringIO()
    console = Console(
        file=target, width=max(60, width), force_terminal=coloured, color_system="standard" if coloured else None, highlight=False
    )
    console.print(frame)
    for block in _blocks(summary):
        console.print(block, soft_wrap=True)  # commands stay on one line, however narrow the terminal
    return target.getvalue()


def _blocks(summary: StartReport) -> Sequence[Text]:
    body = json.dumps({"model": MODEL, "max_tokens": 16, "messages": [{"role": "user", "content": "Hello"}]})
    blocks = [
        _block(f"Sign in (once, within ten minutes; `{command_line('login', summary.state_dir)}` makes another link):", summary.login_link),
        _block(
            "Use the Kubernetes API:" if summary.detached else "Use the Kubernetes API, from another terminal:",
            *(() if summary.activate is None else (f"source {shlex.quote(str(summary.activate))}",)),
            f"export KUBECONFIG={shlex.quote(str(summary.kubeconfig))}",
            "kubectl get fpool",
        ),
    ]
    bearer = ""
    if summary.gateway_key is not None:
        blocks.append(
            _block("Show the gateway's key (`fairlead replay` reads it there):", f"export FAIRLEAD_GATEWAY_KEY={summary.gateway_key}")
        )
        bearer = ' -H "authorization: Bearer $FAIRLEAD_GATEWAY_KEY"'
    if summary.demo:
        url = summary.gateways[0]
        request = f"{url}/v1/chat/completions{bearer} -H 'content-type: application/json' -d '{body}'"
        blocks.append(_block("Send a request:", f"curl -s {request}"))
        blocks.append(
            _block("Replay a trace:", f"fairlead replay --trace TRACE.jsonl --url {url} --pool {POOL_NAMESPACE}/{POOL_NAME} --speed 10")
        )
    stop = "Stop everything:" if summary.detached else "Stop everything, by Ctrl-C or from another terminal:"
    blocks.append(_block(stop, command_line("down", summary.state_dir)))
    return blocks


def _block(title: str, *lines: str) -> Text:
    text = Text("\n" + title, style="bold")
    for line in lines:
        text.append(f"\n  {line}", style="not bold cyan")
    return text

"""The summary shown when `fairlead serve` is up: the address for requests, and the report of each engine."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.box import ROUNDED
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fairlead_serve.probing import EngineFindings, keyless_words


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeReport:
    """The facts about a running `fairlead serve`. `model`: None while no engine has listed a model."""

    gateway: str
    dashboard: str
    login_link: str
    metrics: str
    pool: str
    model: str | None
    pool_file: Path
    is_ours: bool
    state_dir: Path
    findings: tuple[EngineFindings, ...]
    notices: tuple[str, ...] = ()


_NAMES = {"vllm": "", "sglang": "SGLang, "}
"""Display names of engine types. vLLM is left out, because simulated engines report the type vLLM too."""


def render(report: ServeReport, *, width: int, coloured: bool) -> str:
    """Return the summary as text; lines that people copy are outside the frame."""
    target = io.StringIO()
    console = Console(
        file=target, width=max(60, width), force_terminal=coloured, color_system="standard" if coloured else None, highlight=False
    )
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    facts.add_row("Gateway", f"{report.gateway}/v1")
    facts.add_row("Dashboard", report.dashboard)
    facts.add_row("Metrics", report.metrics)
    facts.add_row("Pool", f"{report.pool}, {f'model {report.model}' if report.model else 'no model known yet'}")
    facts.add_row(
        "File",
        f"{report.pool_file} (you may edit it; changes are read at once{'' if report.is_ours else ', but Fairlead never writes the file'})",
    )
    facts.add_row("State", str(report.state_dir))
    facts.add_row("Stop", "Ctrl-C")
    for notice in report.notices:
        facts.add_row("Note", notice)
    console.print(Panel(facts, title="Fairlead serves", box=ROUNDED, expand=False, border_style="green"))
    console.print(Text("\nEngines", style="bold"))
    for one in report.findings:
        console.print(Text(f"  {engine_line(one, report.model)}"), soft_wrap=True)
    console.print(_block("Sign in (once, within ten minutes):", report.login_link), soft_wrap=True)
    if report.model is not None:
        body = json.dumps({"model": report.model, "max_tokens": 16, "messages": [{"role": "user", "content": "Hello"}]})
        request = f"curl -s {report.gateway}/v1/chat/completions -H 'content-type: application/json' -d '{body}'"
        console.print(_block("Send a request:", request), soft_wrap=True)
    return target.getvalue()


def engine_line(found: EngineFindings, model: str | None) -> str:
    """Return the report of one engine in one line."""
    if found.problem is not None:
        return f"{found.url}  {found.problem}; it joins the pool when it answers"
    if model is not None and found.models and model not in found.models:
        return f"{found.url}  serves {', '.join(found.models)}, not {model}; it stays out of the pool"
    words = [", ".join(found.models) or "lists its models only to clients with its key"]
    if found.version is not None:
        words.append(f"{_NAMES[found.engine_type]}version {found.version}")
    words.append(f"KV cache of {found.kv_cache_tokens:,} tokens" if found.kv_cache_tokens else "does not report the size of its KV cache")
    words.append(
        f"KV events at {_endpoints(found)}" if found.sources else "no KV events: its cache is estimated from the requests sent to it"
    )
    return f"{found.url}  {' · '.join(words)}"


def waiting_notices(findings: Sequence[EngineFindings], model: str | None, pool_file: Path) -> tuple[str, ...]:
    """Return notices if no engine responds yet, or if no engine lists the model that the pool needs."""
    if all(one.problem is not None for one in findings):
        return ("no engine answers yet: requests get 503 until one does",)
    return () if model is not None else (keyless_words(pool_file),)


def _endpoints(found: EngineFindings) -> str:
    return ", ".join(source.endpoint for source in found.sources)


def _block(title: str, line: str) -> Text:
    text = Text(f"\n{title}", style="bold")
    text.append(f"\n  {line}", style="not bold cyan")
    return text

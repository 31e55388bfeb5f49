"""docs/troubleshooting.md has every reason, code and type with which Fairlead refuses or reports a fault."""

import ast
import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

import pytest

from fairlead.conditions.facts import ActionFailureReason, NoRoom, SpecRefusal
from fairlead.conditions.roles import SHORTAGES
from fairlead.gateway_keys import KeyRefusal
from fairlead.reconciling.rollout_progress import RolloutTrouble
from fairlead.reports.engines import EngineTrouble
from fairlead.reports.rejections import RejectionReason
from fairlead_api.infra.errors import Unavailable
from fairlead_client.resources.plans import PlanState
from fairlead_operator.observing.pods import TROUBLES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
TOLD = set(re.findall(r"`([^`\s]+)`", PAGE))


def calls(name: str, *folders: str) -> Iterator[ast.Call]:
    """Yield every call of a function or class with this name."""
    for tree in trees(*folders, saying=f"{name}("):
        yield from (one for one in ast.walk(tree) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == name)


def trees(*folders: str, saying: str = "") -> Iterator[ast.Module]:
    """Yield the modules that contain these characters, as parsing all modules takes seconds."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if saying in (source := path.read_text(encoding="utf-8")):
                yield ast.parse(source)


def texts(node: ast.AST) -> Iterator[str]:
    """Yield every string in an expression."""
    yield from (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))


def given(call: ast.Call, keyword: str) -> Iterator[str]:
    yield from (text for one in call.keywords if one.arg == keyword for text in texts(one.value))


def of_conditions() -> set[str]:
    """Return the reasons of conditions, including reasons passed in by other parts."""
    written = {reason for call in calls("Condition", "core/fairlead/conditions") for reason in given(call, "reason")}
    chosen = {
        text
        for tree in trees("core/fairlead/conditions")
        for one in ast.walk(tree)
        if isinstance(one, ast.Assign)
        and any(isinstance(name, ast.Name) and name.id in {"reason", "NOT_ANSWERED_YET"} for name in one.targets)
        for text in texts(one.value)
    }
    enums: tuple[type[StrEnum], ...] = (SpecRefusal, ActionFailureReason, NoRoom, RolloutTrouble, EngineTrouble)
    troubles = {reason for call in calls("Trouble", "operator") for reason in given(call, "reason")} - {"reason"}
    return written | chosen | {*SHORTAGES, *TROUBLES} | troubles | {one.value for enum in enums for one in enum}


def of_running_engines() -> set[str]:
    """Return the reasons of an engine's health, from `fairlead serve`."""
    found = {reason for call in calls("Health", "serve/fairlead_serve") for reason in given(call, "reason")}
    probing = ast.parse((ROOT / "serve" / "fairlead_serve" / "probing.py").read_text(encoding="utf-8"))
    [failure] = [one for one in probing.body if isinstance(one, ast.FunctionDef) and one.name == "_failure"]
    pairs = [one.value for one in ast.walk(failure) if isinstance(one, ast.Return) and isinstance(one.value, ast.Tuple)]
    return found | {text for pair in pairs for text in texts(pair.elts[0])}


def of_problems() -> set[str]:
    """Return the types of the control API's problem documents."""
    found: set[str] = set()
    for name in ("Conflict", "NotAuthenticated", "_problem"):
        for call in calls(name, "controlplane", "host"):
            if call.args and isinstance(call.args[0], ast.Constant):
                found |= set(texts(call.args[0]))
    found |= {code for call in calls("Allowances", "controlplane") for code in given(call, "code")}
    waiting: list[type[Unavailable]] = [Unavailable]
    while waiting:
        waiting += (one := waiting.pop()).__subclasses__()
        found |= {one.code} - {"unavailable"}
    of_plans = {f"plan-{state}" for state in PlanState if state not in {PlanState.OPEN, PlanState.APPLIED, PlanState.UNDONE}}
    return found | of_plans | {"not-found", "method-not-allowed", "too-large", "http-error"}


def of_the_gateway() -> set[str]:
    """Return the codes of the gateway's errors."""
    codes = {text for call in calls("BadRequest", "router") if len(call.args) > 1 for text in texts(call.args[1])}
    return codes | {one.value for one in (*RejectionReason, *KeyRefusal)} | {"internal_error"}


@pytest.mark.parametrize(
    ("words_of_code", "among_them"),
    [
        (of_conditions, {"Settled", "TargetMissed", "ActionFailed", "NoAnswer", "TooFewReplicas", "Unschedulable"}),
        (of_running_engines, {"NoConnection", "Unhealthy", "NotAskedYet"}),
        (of_problems, {"object-changed", "database-busy", "token-missing", "denied", "plan-expired"}),
        (of_the_gateway, {"rejected-queue-full", "key-missing", "headers_timeout", "model_not_found"}),
    ],
    ids=["conditions", "running engines", "problems", "gateway"],
)
def test_every_word_of_the_code_has_its_line(words_of_code: Callable[[], set[str]], among_them: set[str]) -> None:
    words = words_of_code()
    assert among_them <= words, "the words are read from the code"
    assert words - TOLD == set()


def test_what_is_quoted_is_said_by_the_code() -> None:
    """Quoted messages are compared up to the mark of a value (`…`)."""
    quoted = [one.partition("…")[0].rstrip(" (") for one in re.findall(r'"([a-z][^"`]* [^"`]*)"', re.sub(r"`[^`]*`", "", PAGE))]
    said = "\n".join(text for tree in trees("controlplane", "router", "operator", "core", "host", "serve") for text in texts(tree))
    assert len(quoted) >= 2
    assert [words for words in quoted if words not in said] == []


def test_every_metric_that_is_named_exists() -> None:
    metrics = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    named = re.findall(r"`(fairlead_(?:router|api)_\w+)`", PAGE)
    assert named
    assert [name for name in named if f"`{name}`" not in metrics] == []


def test_every_alert_of_the_chart_has_a_row() -> None:
    rules = (ROOT / "helm" / "fairlead" / "files" / "rules.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"- alert: (\w+)", rules)) <= TOLD

"""The simulator's form: turns typed text into a request for a simulation, and an earlier simulation into a form.

Pure. A refused form keeps the typed text and shows the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import yaml

from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_client.resources.simulations import EngineModel, SimulatedPolicy, Simulation, SimulationRequest, TraceRequest
from fairlead_process.yaml_documents import read_yaml
from fairlead_web.text.typed_text import whole_number

NOW = "now"
"""Name of the form's checkbox for the pool's present policy."""
SUGGESTED = "fairlead"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationForm:
    """The simulator's form as last submitted. `present` is the pool's present policy; `boxes` are the other policies
    with a checkbox, and `ticked` the chosen ones. `lines` are policies with parameters, one per line. `split` is True
    if the pool has prefill and decode instances.
    """

    present: SimulatedPolicy
    boxes: tuple[str, ...]
    ticked: frozenset[str]
    split: bool
    lines: str = ""
    rates: str = "1"
    start: str = "now-1h"
    end: str = "now"
    replicas: str = ""
    prefill_replicas: str = ""
    decode_replicas: str = ""
    engine: str = ""
    seed: str = "0"
    problem: str | None = None

    @property
    def present_words(self) -> str:
        """The pool's present policy with its parameters."""
        return policy_text(self.present)

    @property
    def engines(self) -> tuple[str, ...]:
        """The engine models to choose from."""
        return tuple(one.value for one in EngineModel)


_TYPED = ("lines", "rates", "start", "end", "replicas", "prefill_replicas", "decode_replicas", "engine", "seed")


def form_of(spec: Mapping[str, Any], policies: Sequence[str] = ()) -> SimulationForm:
    """Return the form for a pool with this spec. The present policy and the given `policies` are ticked."""
    routing = spec.get("routing") or {}
    parameters = dict(routing.get("parameters") or {})
    present = SimulatedPolicy(policy=str(routing.get("policy", SUGGESTED)), parameters=parameters)
    boxes = tuple(name for name in sorted(BUILT_IN.names) if name != present.policy or parameters)
    wanted = policies or (SUGGESTED,)
    roles = {str(role.get("name")) for role in spec.get("roles") or []}
    return SimulationForm(
        present=present,
        boxes=boxes,
        ticked=frozenset({NOW, *(name for name in wanted if name in boxes)}),
        split=bool(roles & {Role.PREFILL.value, Role.DECODE.value}),
    )


def again(form: SimulationForm, found: Simulation) -> SimulationForm:
    """Return the form with the values of an earlier simulation. Submitted unchanged, it gives the same results."""
    window: dict[str, Any] = {"start": found.start.isoformat(), "end": found.end.isoformat()} if found.start and found.end else {}
    numbers: dict[str, Any] = {name: str(getattr(found, name) or "") for name in ("replicas", "prefill_replicas", "decode_replicas")}
    return replace(
        form,
        ticked=frozenset(),
        lines="\n".join(policy_text(one) for one in found.policies),
        rates=", ".join(f"{rate:g}" for rate in found.rates),
        engine=found.engine.value if found.engine else "",
        seed=str(found.seed),
        **window,
        **numbers,
    )


def typed(form: SimulationForm, given: Mapping[str, str], ticked: Sequence[str]) -> SimulationForm:
    """Return the form with the submitted values."""
    values: dict[str, Any] = {name: given.get(name, "").strip() for name in _TYPED}
    return replace(form, ticked=frozenset(ticked) & {NOW, *form.boxes}, **values)


def asked(form: SimulationForm, trace: list[TraceRequest] | None) -> SimulationRequest:
    """Return the simulation that a form requests: the present policy first, then the ticked policies, then the policies
    typed in lines.

    Raises InvalidInput for text that cannot be sent.
    """
    policies = [form.present] if NOW in form.ticked else []
    policies += [SimulatedPolicy(policy=name) for name in form.boxes if name in form.ticked]
    policies += [one for one in _policies(form.lines) if one not in policies]
    if not policies:
        raise InvalidInput("policies", None, "tick one policy or more")
    numbers = {
        name: _whole(name, text) if (text := getattr(form, name)) else None for name in ("replicas", "prefill_replicas", "decode_replicas")
    }
    if form.engine not in {"", *form.engines}:
        raise InvalidInput("engine", form.engine, f"choose one of {', '.join(form.engines)}")
    return SimulationRequest(
        policies=policies,
        rates=_rates(form.rates),
        start=form.start or "now-1h",
        end=form.end or "now",
        trace=trace,
        engine=EngineModel(form.engine) if form.engine else None,
        seed=_whole("seed", form.seed or "0"),
        **numbers,
    )


def policy_text(one: SimulatedPolicy) -> str:
    """Format a policy as a line of the form, which the command line also accepts: `ear:{"cooldown_seconds":60}`."""
    return one.policy + (f":{msgspec.json.encode(one.parameters).decode()}" if one.parameters else "")


def _policies(lines: str) -> list[SimulatedPolicy]:
    found = []
    for line in lines.splitlines():
        name, colon, rest = line.strip().partition(":")
        if not name:
            continue
        try:
            parameters = read_yaml(rest) if colon else None
        except yaml.YAMLError:
            parameters = rest
        if parameters is not None and not isinstance(parameters, dict):
            raise InvalidInput("lines", line.strip(), 'write one policy per line, such as ear:{"cooldown_seconds": 60}')
        found.append(SimulatedPolicy(policy=name.strip(), parameters=parameters or {}))
    return found


def _rates(text: str) -> list[float]:
    try:
        return [float(part) for part in text.replace(",", " ").split()] or [1.0]
    except ValueError as error:
        raise InvalidInput("rates", text, "write multiples of the recorded rate, such as 1, 1.5") from error


def _whole(name: str, text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise InvalidInput(name, text, "write a whole number")
    return number

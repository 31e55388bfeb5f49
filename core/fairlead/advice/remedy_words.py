"""Writes the remedies of findings and of causes of refusals as text. Remedies come from simulations and from recorded
requests.
"""

from fairlead.advice import wording
from fairlead.amounts import amount
from fairlead.instances import Role
from fairlead.scaling.remedies import Confirmed, Reach, Simulated, enough_instances, enough_time

WORTH_TELLING = 0.1
"""Minimum share (0-1) of the refused requests that no number of instances serves in time, from which findings mention
these requests.
"""


def is_beyond(found: Simulated) -> bool:
    """Return whether findings should mention requests that no number of instances serves in time. This is the case if
    these requests are at least `WORTH_TELLING` of the refused requests, or a larger share of all requests than the
    objectives allow to be late.
    """
    return found.reach.exceeds(1 - found.goal) or (found.reach.share_of_refused or 0.0) >= WORTH_TELLING


def number_words(found: Simulated, chosen: Confirmed) -> str:
    """Write a confirmed number with its range: `16 replicas would serve it (13 to 20; 16 is confirmed by the simulation
    of the last 58 min)`.
    """
    noun = wording.of_role(found.role, round(chosen.value), "replica")
    span = _range(chosen)
    if chosen.meets:
        return f"{noun} would serve it ({span}{round(chosen.value)} is confirmed by {simulation_words(found)})"
    brings = f"{noun} would bring {wording.share(chosen.attainment)} of all requests in time instead of {wording.share(found.before)}"
    return f"{brings} ({span}by {simulation_words(found)})"


def _range(chosen: Confirmed) -> str:
    if chosen.most is None:
        return f"{round(chosen.least)} or more; "
    return f"{round(chosen.least)} to {round(chosen.most)}; " if chosen.least < chosen.most else ""


def simulation_words(found: Simulated) -> str:
    """Name the simulation and the time span that it covers."""
    return f"the simulation of the last {wording.seconds(found.seconds)}"


def beyond_words(reach: Reach, ttft_seconds: float) -> str:
    """Return a sentence that says how many requests would be late with any number of instances, and why."""
    refused = reach.share_of_refused
    whose = f"{wording.share(reach.share)} of requests"
    if refused is not None:
        whose += f" ({wording.share(refused)} of the refused ones)"
    if reach.too_long == reach.beyond:
        return f"{whose} need more KV memory than an engine has; no number of instances can serve them"
    tokens = "" if reach.tokens is None else f", which computes {amount(reach.tokens, 'token')} in that time"
    needs = f"need more than the TTFT target of {wording.seconds(ttft_seconds)} alone on an idle instance{tokens}"
    return f"{whose} {needs}; no number of instances can serve them in time"


def beyond_remedies(found: Simulated) -> str:
    """Return the remedies for prompts that no number of instances serves in time. A higher TTFT target is proposed only
    as far as the simulation confirms it.
    """
    reach, confirmed = found.reach, enough_time(found)
    remedies = []
    if confirmed is not None:
        brings = f"{wording.share(confirmed.attainment)} in time by {simulation_words(found)}"
        remedies.append(f"a TTFT target of {wording.seconds(confirmed.value)} ({brings})")
    elif reach.ttft_seconds is not None:
        remedies.append(f"a TTFT target of {wording.seconds(reach.ttft_seconds)} or more, at the present load (an estimate)")
    remedies.append("a pool of their own with such a target")
    if reach.speed is not None:
        remedies.append(f"engines {reach.speed:.1f} times as fast")
    if found.role is Role.BOTH:
        remedies.append("prefill instances, which do not decode meanwhile")
    words = f"remedies for them: {', '.join(remedies[:-1])} or {remedies[-1]}"
    return f"{words}; chunked prefill only keeps them from holding up short prompts"


def rest_words(found: Simulated) -> str:
    """Return a sentence about the effect of more instances on the requests whose prompts are not too long."""
    chosen = enough_instances(found)
    if found.unlike is not None:
        return f"whether more replicas help the other requests is not known: {found.unlike}"
    if chosen is None:
        return f"more replicas would not help, according to {simulation_words(found)}"
    return number_words(found, chosen)

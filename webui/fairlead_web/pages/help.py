"""`/help` and `/-/version`: a page that explains terms, keys and common patterns; and the running release."""

from dataclasses import dataclass
from importlib.metadata import version
from typing import ClassVar

from starlette.responses import JSONResponse, Response

from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import Routes
from fairlead_web.frame.shells import Crumb, Shell
from fairlead_web.frame.visits import Visit


@dataclass(frozen=True, slots=True, kw_only=True)
class HelpPage(Context):
    template: ClassVar[str] = "pages/help.html"
    shell: Shell
    glossary: tuple[tuple[str, str], ...]
    shortcuts: tuple[tuple[str, str], ...]
    patterns: tuple[tuple[str, str], ...]


GLOSSARY = (
    ("Instance", "One engine that computes requests; in Kubernetes, one pod that the pool made or adopted."),
    ("Binding", "Which instance holds a session's KV cache, and therefore gets the session's next request."),
    ("Migration", "A session's binding moved to another instance: because the old one was hot, draining or lost."),
    ("Re-route", "One queued or unbound request sent to another instance than it was first placed on. No session moves."),
    ("Decision", "The routing of one request: candidates, their scores, the chosen one and why. A sample of all decisions is kept."),
    (
        "Pending prefill",
        "Prompt tokens that were placed on an instance and that it has not computed yet: the best single measure of how hot it is. Its "
        "limit in heatmaps is what an instance computes within the TTFT target.",
    ),
    ("Hit rate", "Share of prompt tokens that were already in the instance's prefix cache."),
    ("TTFT", "Time to first token, as the client sees it. TPOT: time per output token after that."),
    ("In time", "Share of requests within the SLO, by TTFT and TPOT both: attainment. TTFT in time: share of first tokens alone."),
    ("Asleep", "An instance kept for the next need: it holds no cache, gets no request, and wakes up in seconds."),
    (
        "Early rejection",
        "Refusing a request at once (429, Retry-After) when no instance could meet its SLO. Disabled; Load, "
        "by the current load; Predicted, also by the "
        "load expected while the request decodes; or AfterPrefill, once more when its prompt is computed.",
    ),
    ("Anchor", "A point of an instance on the hash ring; with more anchors it gets a larger share of new sessions."),
    (
        "Draining",
        (
            "Takes no new requests: its sessions leave with their next request. Running requests finish before the pod is deleted or released."
        ),
    ),
    ("Plan", "A change previewed by the Kubernetes API without being made: what would differ, who would be affected."),
)
PATTERNS = (
    ("A bright row", "One instance stays hot: a few heavy sessions are bound to it. Look at its sessions; migrations should move some."),
    ("A dark row among bright ones", "An instance gets no work: starting, cordoned, or a small share of the ring. Look at its state."),
    ("A bright column", "All instances at once: a burst of traffic, not a routing problem. Look at rejections and scale."),
    (
        "A diagonal",
        (
            "The hot spot moves from instance to instance: migrations chase a heavy session. Look in the flow "
            "matrix for moves from A to B and back."
        ),
    ),
    ("A hatched end", "No data: the instance is gone, or the routers stopped reporting."),
)
SHORTCUTS = (
    ("g o", "Overview"),
    ("g p", "Pools"),
    ("g h", "Heatmap of the current pool"),
    ("g s", "Sessions"),
    ("g m", "Migrations"),
    ("g d", "Decisions"),
    ("g r", "Rejections"),
    ("g a", "Audit"),
    ("/ or Ctrl+K", "Go to a page, change a pool, or search sessions, requests, instances, pools, plans and the audit log"),
    ("← → ↑ ↓", "Within the sidebar and the tabs, which are one stop of the Tab key each; Home, End: first, last"),
    ("j, k", "Next, previous row"),
    ("Enter", "Open the row"),
    ("t z", "Zoom out the time range"),
    ("t ← / t →", "Earlier, later"),
    ("t a", "Make the range absolute (permalink)"),
    ("l", "Pause or resume live updates"),
    ("d", "Change the theme"),
    ("?", "This list"),
    ("Esc", "Close, leave"),
)


async def show(visit: Visit) -> Response:
    shell = await visit.shell("Help", "help", crumbs=(Crumb(words="Help"),))
    return visit.page(HelpPage(shell=shell, glossary=GLOSSARY, shortcuts=SHORTCUTS, patterns=PATTERNS))


async def release(visit: Visit) -> Response:
    return JSONResponse({"name": "fairlead", "version": version("fairlead"), "assets": visit.site.assets.version})


async def session(visit: Visit) -> Response:
    """Respond whether the API is reachable and accepts this session. Scripts request this before they send a form, so
    that no typed text is lost.
    """
    return JSONResponse({"subject": (await visit.api.whoami()).subject})


ROUTES = Routes(pages={"/help": show, "/-/version": release, "/-/session": session})

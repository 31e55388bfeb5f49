"""Single answers that contain a table: the whole answer as JSON, the table as CSV with a row for each item."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx
from fastapi import APIRouter, FastAPI

from fairlead.instances import InstanceState, Role
from fairlead_api.advice.asking import trend_steps
from fairlead_api.http import problems
from fairlead_api.http.documents import Ask, document
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.spans import Sight
from fairlead_api.loads.routes import heatmap_cells
from fairlead_api.series.reading import series_values
from fairlead_client.resources.access import AccessRole, Identity
from fairlead_client.resources.advice import PoolTrend, Trends
from fairlead_client.resources.figures import RangeFigures
from fairlead_client.resources.heatmaps import Heatmap, HeatmapRow
from fairlead_client.resources.series import Drawn, Series, SeriesLine
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport

AT = datetime(2026, 1, 1, tzinfo=UTC)
ADA = Identity(subject="ada", role=AccessRole.NONE, source="token", expires_at=None, namespaces={"team-a": AccessRole.VIEWER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    name: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    sight: list[str]
    items: list[Named]


def rows(found: Found) -> Iterator[Named]:
    yield from found.items


def served() -> httpx.AsyncClient:
    async def get_names(last: int = 3) -> Ask:
        """Return names."""

        async def ask(sight: Sight) -> Found:
            return Found(sight=sorted(sight or ()), items=[Named(name=f"=n{number}", number=number) for number in range(last)])

        return ask

    routes = APIRouter()
    document(routes, "/names", Found, lambda: Caller(identity=ADA, key=b"", request_id="r1"), get_names, Named, rows)
    app = FastAPI(routes=routes.routes)
    problems.install(app)
    return httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(app))


async def test_the_file_is_what_is_answered_and_the_table_its_rows_of_what_one_may_see() -> None:
    async with served() as http:
        told, kept = await http.get("/names"), await http.get("/names.json")
        assert told.json() == kept.json()
        assert told.json()["sight"] == ["team-a"]
        assert kept.headers["content-disposition"] == 'attachment; filename="names.json"'
        for last in (0, 3, 1201):
            table = list(csv.reader(io.StringIO((await http.get("/names.csv", params={"last": last})).text)))
            assert table == [["name", "number"], *([f"'=n{number}", str(number)] for number in range(last))]
        assert (await http.get("/names.csv", params={"fields": "number", "last": 2})).text.split() == ["number", "0", "1"]
        refused = await http.get("/names.csv", params={"fields": "size"})
        assert (refused.status_code, refused.json()["remedy"]) == (422, "write names among name, number")


def test_a_heatmap_has_a_row_for_each_cell_that_is_known() -> None:
    row = HeatmapRow(instance="a", state=InstanceState.SERVING, role=Role.BOTH, node=None, members=1, values=[1.0, None, 3.0], breaches=[2])
    found = Heatmap(
        pool="default/chat",
        metric="running",
        unit="requests",
        aggregate="max",
        scale="linear",
        start=AT,
        step_seconds=10,
        columns=3,
        maximum=3.0,
        limit=2.0,
        group="instance",
        rows_total=1,
        rows=[row],
        migrations=[],
        migrations_total=0,
    )
    assert [(one.instance, one.at.second, one.value, one.breach) for one in heatmap_cells(found)] == [
        ("a", 0, 1.0, False),
        ("a", 20, 3.0, True),
    ]


def test_lines_and_trends_have_a_row_for_each_step() -> None:
    line = SeriesLine(metric="running", part="both", unit="requests", drawn=Drawn.LINE, start=AT, step_seconds=60, values=[None, 2.0])
    (value,) = series_values(Series(pool=None, instance=None, start=AT, end=AT, lines=[line]))
    assert (value.metric, value.part, value.at.minute, value.value) == ("running", "both", 1, 2.0)
    trend = PoolTrend(
        pool="default/chat",
        judged=[5, 0],
        in_time=[4, 0],
        refused=[1, 2],
        failed=[0, 0],
        ttft_seconds=[0.5, None],
        instance_hours=1.0,
        figures=RangeFigures(start=AT, end=AT),
    )
    steps = list(trend_steps(Trends(start=AT, end=AT, step_seconds=60, fleet=trend, pools=[trend])))
    assert [(one.pool, one.at.minute, one.judged, one.refused, one.ttft_seconds) for one in steps] == [
        ("default/chat", 0, 5, 1, 0.5),
        ("default/chat", 1, 0, 2, None),
    ]

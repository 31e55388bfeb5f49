"""The measured server: Postgres with an hour of a large pool, and a process with API and web UI."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from benchmarks.api_processes import ApiProcess
from benchmarks.history_rows import Size, fill, fill_columns, fill_loads
from benchmarks.web_budgets.budgets import say

from fairlead_api.infra.upgrading import upgrade
from fairlead_testing.running.postgres import FAST, PostgresProcess, place_of_servers, plain, with_database

INSTANCES = 512
"""The number of instances, which is the number of rows of a heatmap."""
HOUR, DAY = 3600, 86_400
SAMPLED_SECONDS = 600
"""The last seconds of the hour for which load samples exist. Earlier seconds have only rollups."""
SERVER = {**FAST, "shared_buffers": "1GB", "work_mem": "16MB", "jit": "off"}
_NOISE = """
UPDATE load_rollups_10s SET pending_prefill_tokens_max = made.value, pending_prefill_tokens_sum = 5 * made.value
FROM (SELECT pool_id AS p, bucket AS b, instance AS i, floor(-ln(1 - random()) * (300 + 10 * substr(instance, 2)::int)) AS value
      FROM load_rollups_10s) made
WHERE pool_id = made.p AND bucket = made.b AND instance = made.i
"""
"""The statement that fills heatmap cells with noise that does not depend on neighbouring cells.

No real pool's load compresses worse as a picture.
"""


@contextmanager
def served(instances: int) -> Iterator[ApiProcess]:
    """Yield the ready process of API and web UI on a filled database. Process and database are removed after the
    block.
    """
    with tempfile.TemporaryDirectory(prefix="fl-web-", dir=place_of_servers()) as scratch:
        folder = Path(scratch)
        postgres = PostgresProcess(folder, SERVER)
        postgres.start()
        try:
            url = _filled(postgres.url, instances)
            api = ApiProcess(url, folder / "api.log", {"FAIRLEAD_MIGRATE": "0", "FAIRLEAD_WEB": "1"}, module="fairlead_host")
            api.start()
            try:
                api.until_ready()
                yield api
            finally:
                api.kill()
        finally:
            postgres.stop()


def _filled(server: str, instances: int) -> str:
    with psycopg.connect(plain(server), autocommit=True) as connection:
        connection.execute("CREATE DATABASE web")
    url = with_database(server, "web")
    begun = time.monotonic()
    upgrade(url)
    fill(plain(url), Size(instances=instances, sessions=20_000, migrations=50_000, decisions=50_000, audit=10_000, load_seconds=0))
    now = int(time.time())
    fill_loads(plain(url), instances, now - HOUR - 60, now, samples_from=now - SAMPLED_SECONDS)
    with psycopg.connect(plain(url), autocommit=True) as connection:
        connection.execute(_NOISE)
        connection.execute("TRUNCATE heatmap_columns")
    fill_columns(plain(url), now - DAY, now)
    with psycopg.connect(plain(url), autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")  # a server that has run for an hour knows its tables
    say(f"an hour of {instances} instances filled in {time.monotonic() - begun:.0f} s")
    return url

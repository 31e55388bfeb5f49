"""The command `fairlead serve`."""

import asyncio
import os
import sys
from pathlib import Path

import click


@click.command()
@click.option("--engine", "engines", multiple=True, metavar="URL", help="An engine's address, http://HOST:PORT; repeat for each engine.")
@click.option("--prefill", "prefills", multiple=True, metavar="URL", help="An engine that computes prompts for the --decode engines.")
@click.option(
    "--decode", "decodes", multiple=True, metavar="URL", help="An engine that computes the answers to the prompts of the --prefill engines."
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A YAML file with engines, policy, SLO and early rejection; read again when it changes.",
)
@click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=".fairlead-serve",
    show_default=True,
    envvar="FAIRLEAD_STATE_DIR",
    help="Where history and settings are kept.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address that the gateway listens on; 0.0.0.0 for all addresses.")
@click.option("--port", type=click.IntRange(1, 65535), help="The gateway's port.  [default: 8100 or the next free one]")
@click.option("--dashboard-port", type=click.IntRange(1, 65535), help="The dashboard's port.  [default: 8080 or the next free one]")
def serve(
    engines: tuple[str, ...],
    prefills: tuple[str, ...],
    decodes: tuple[str, ...],
    config: Path | None,
    state_dir: Path,
    host: str,
    port: int | None,
    dashboard_port: int | None,
) -> None:
    """Put gateway, dashboard and history in front of running engines. Without --engine and --config, uses the engines
    of the last run in --state-dir.
    """
    from fairlead_serve.starting import ServeOptions, ServeRun

    options = ServeOptions(
        state_dir=state_dir.absolute(),
        engines=engines,
        prefills=prefills,
        decodes=decodes,
        config=config,
        host=host,
        port=port,
        dashboard_port=dashboard_port,
    )
    asyncio.run(ServeRun(options, dict(os.environ), sys.stdout).run())

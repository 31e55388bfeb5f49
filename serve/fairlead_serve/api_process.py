"""The process of the control API and the web UI for a served pool: `python -m fairlead_serve.api_process …`."""

from pathlib import Path

import click
from starlette.types import ASGIApp

from fairlead_api.infra.autoscaler_ports import AutoscalerPorts
from fairlead_api.serving import Place, serve
from fairlead_api.settings import Settings
from fairlead_host.app import create_app
from fairlead_host.settings import read_settings
from fairlead_process.commands import run_program
from fairlead_process.policies import installed_policies
from fairlead_process.starting import begin, one_line_errors
from fairlead_serve.file_cluster import FileCluster
from fairlead_serve.state_files import StateFiles


@click.command()
@click.option("--host", required=True)
@click.option("--port", type=click.IntRange(0, 65535), required=True)
@click.option("--state-dir", type=click.Path(path_type=Path), required=True)
@click.option("--file", "file", type=click.Path(path_type=Path), required=True)
def main(host: str, port: int, state_dir: Path, file: Path) -> None:
    """Serve the API and the pages; plans are made for the file instead of a Kubernetes object."""
    with one_line_errors("serve"):
        settings = begin(read_settings)
        cluster = FileCluster(StateFiles(root=state_dir, pool_file=file), installed_policies())

        def app(api: Settings, url: str, ports: AutoscalerPorts) -> ASGIApp:
            return create_app(api, settings.public_url or url, cluster, ports=ports)

        serve(settings.api, Place(host=host, port=port, wait_for_database=10.0), app)


if __name__ == "__main__":
    run_program(main, "python -m fairlead_serve.api_process")

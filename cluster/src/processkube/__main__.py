"""`processkube api|kubelet|service-proxy`: each command runs one process in the foreground until the process is
ended.
"""

import click

from processkube.kubelet.main import main as kubelet
from processkube.kubernetes_api.main import main as kubernetes_api
from processkube.service_proxy.main import main as service_proxy


@click.group()
def main() -> None:
    """Kubernetes whose pods are processes. Start the API first, then the kubelet, then the service proxy."""


main.add_command(kubernetes_api, "api")
main.add_command(kubelet, "kubelet")
main.add_command(service_proxy, "service-proxy")

if __name__ == "__main__":
    main(prog_name="processkube")

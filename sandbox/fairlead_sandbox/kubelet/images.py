"""What the images of the chart and of its pools contain, and the command line that a container of one becomes.

The sandbox has no container runtime: an image is a line of the table below, and its programs are those of the installed
package. Registry, tag and digest are not looked at: whatever version is asked for, it is the installed one that runs.
"""

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from fairlead_sandbox.kubelet.expansion import expand_all
from fairlead_sandbox.kubelet.pod_specs import ContainerSpec
from fairlead_sandbox.kubelet.refusals import PodRefused
from fairlead_sandbox.postgres import find_binaries

_EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - what manifests say
_OWN_ADDRESSES = frozenset({_EVERY_ADDRESS, "127.0.0.1", "localhost"})
_PYTHON = ("{python}", "-P")
_FAIRLEAD = (*_PYTHON, "{folder}/fairlead")


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One image. `command` is its own; `programs` gives the command line behind each program that it has; `{python}`
    is the Python that runs us, `{folder}` where it is, and so the command `fairlead`, `{postgres}` where Postgres is.

    `listens` are arguments that it is given unless it has them: there `{address}` is the pod's. `variables` are its
    environment. It runs as `user` unless the manifest says otherwise; `stop_signal` asks it to end.
    """

    command: tuple[str, ...]
    programs: Mapping[str, tuple[str, ...]]
    listens: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    user: tuple[str, int] = ("fairlead", 10001)
    stop_signal: int = signal.SIGTERM


_PROCESS = {"fairlead": _FAIRLEAD, "python": _PYTHON}
IMAGES = {
    "fairlead/engine": Image(
        command=("fairlead-engine",),
        programs={"fairlead-engine": (*_PYTHON, "-m", "fairlead_simulator.engine_server")},
        listens=("--host", "{address}"),
    ),
    "fairlead/operator": Image(
        command=("fairlead", "operator"), programs=_PROCESS, variables={"FAIRLEAD_OPERATOR_HEALTH_HOST": "{address}"}
    ),
    "fairlead/api": Image(command=("fairlead", "api", "--host", _EVERY_ADDRESS), programs=_PROCESS),
    "fairlead/router": Image(command=("fairlead", "router", "--host", _EVERY_ADDRESS, "--admin-host", _EVERY_ADDRESS), programs=_PROCESS),
    "postgres": Image(
        command=("postgres",),
        programs={"postgres": (*_PYTHON, "-m", "fairlead_sandbox.kubelet.postgres_image"), "pg_isready": ("{postgres}/pg_isready",)},
        variables={"PGDATA": "/var/lib/postgresql/data", "SANDBOX_POD_IP": "{address}"},
        user=("postgres", 999),
        stop_signal=signal.SIGINT,
    ),
}
"""By repository. As in images/Dockerfile, and as Docker Hub's `postgres`."""


def image_of(container: ContainerSpec) -> Image:
    """The container's image. Raises PodRefused when the sandbox does not have it."""
    repository = re.sub(r"(@[^/]*|:[^/]*)$", "", re.sub(r"@.*$", "", container.image))
    for name, image in IMAGES.items():
        if repository == name or repository.endswith(f"/{name}"):
            return image
    raise PodRefused(
        "ErrImagePull",
        f"image {container.image!r}: the sandbox has no container runtime and runs only {', '.join(IMAGES)}; "
        "use engine.type simulated here, or a real cluster for this image",
    )


def command_line(container: ContainerSpec, variables: Mapping[str, str], *, python: str, pod_ip: str) -> tuple[str, ...]:
    """The command line that runs a container. Raises PodRefused when the sandbox has not the image or the command."""
    image = image_of(container)
    command = expand_all(container.command, variables)
    arguments = expand_all(container.args, variables)
    if not command and (not arguments or arguments[0].startswith("-")):
        command = image.command
    line = _at_own_address(program_line(image, (*command, *arguments), python=python, where=container.image), {_EVERY_ADDRESS}, pod_ip)
    if image.listens and not any(argument == image.listens[0] or argument.startswith(f"{image.listens[0]}=") for argument in line):
        line += tuple(part.format(address=pod_ip) for part in image.listens)
    return line


def command_within(container: ContainerSpec, command: tuple[str, ...], *, python: str, pod_ip: str) -> tuple[str, ...]:
    """The command line of a probe or hook in a running container. Raises PodRefused.

    The pod's loopback is its own address here.
    """
    return _at_own_address(program_line(image_of(container), command, python=python, where=container.image), _OWN_ADDRESSES, pod_ip)


def stop_signal(container: ContainerSpec) -> int:
    """The signal that asks the container to end."""
    return image_of(container).stop_signal


def image_user(container: ContainerSpec) -> int:
    """The id of the user that the image says, who is of the group of the same id. Raises PodRefused."""
    return image_of(container).user[1]


def account_files(container: ContainerSpec) -> dict[str, str]:
    """The image's own files of accounts, by path. Raises PodRefused."""
    name, number = image_of(container).user
    return {
        "/etc/passwd": f"root:x:0:0:root:/root:/usr/sbin/nologin\n{name}:x:{number}:{number}::/:/usr/sbin/nologin\n",
        "/etc/group": f"root:x:0:\n{name}:x:{number}:\n",
    }


def image_variables(container: ContainerSpec, *, pod_ip: str) -> dict[str, str]:
    """The environment that the image gives the container. Raises PodRefused."""
    return {name: value.format(address=pod_ip) for name, value in image_of(container).variables.items()}


def program_line(image: Image, command: tuple[str, ...], *, python: str, where: str) -> tuple[str, ...]:
    """The command with its program as it is found here. Raises PodRefused for a program that the image has not."""
    program = command[0].rpartition("/")[2]
    if program not in image.programs:
        raise PodRefused("RunContainerError", f"command {command[0]!r} is not in image {where}; it has {', '.join(image.programs)} only")
    line, places = image.programs[program], {"python": python, "folder": str(PurePath(python).parent)}
    if any("{postgres}" in part for part in line):
        places["postgres"] = str(find_binaries())
    return (*(part.format(**places) for part in line), *command[1:])


def _at_own_address(line: tuple[str, ...], addresses: "frozenset[str] | set[str]", pod_ip: str) -> tuple[str, ...]:
    """The line with the pod's address for those that, in a pod, mean its own.

    Pods share the machine's network, each with an address of its own: two that listened on every address would collide.
    """

    def own(argument: str) -> str:
        name, equals, value = argument.rpartition("=")
        return f"{name}{equals}{pod_ip}" if value in addresses else argument

    return tuple(own(argument) for argument in line)

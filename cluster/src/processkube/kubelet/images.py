"""The catalogue of images: which program of this machine runs in place of a container's image and command.

There is no container runtime. Registry, tag and digest are ignored: whatever version is named, the installed one runs.
"""

import importlib
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from processkube.errors import ProcesskubeError
from processkube.kubelet.expansion import expand_all
from processkube.kubelet.pod_specs import ContainerSpec
from processkube.kubelet.refusals import PodRefused

_EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - what manifests say
_OWN_ADDRESSES = frozenset({_EVERY_ADDRESS, "127.0.0.1", "localhost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One image.

    `command`: the image's own command.
    `programs`: the command line for each of its programs. `{python}` is the Python that runs the kubelet, `{folder}`
    that Python's folder; other names in braces are looked up in `places` when a container starts.
    `listens`: arguments that are added unless the command has them; `{address}` is the pod's address.
    `variables`: its environment.
    `user`: the user as which it runs, unless the manifest names another.
    `stop_signal`: the signal that asks it to end.
    """

    command: tuple[str, ...]
    programs: Mapping[str, tuple[str, ...]]
    places: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    listens: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    user: tuple[str, int] = ("nonroot", 65532)
    stop_signal: int = signal.SIGTERM


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """The images of a kubelet, by repository. `remedy`: what a person can do if an image is not among them."""

    images: Mapping[str, Image]
    remedy: str = "use a real cluster for this image"

    def image_of(self, container: ContainerSpec) -> Image:
        """Return the container's image. Raises PodRefused when the catalogue does not have it."""
        repository = re.sub(r"(@[^/]*|:[^/]*)$", "", re.sub(r"@.*$", "", container.image))
        for name, image in self.images.items():
            if repository == name or repository.endswith(f"/{name}"):
                return image
        raise PodRefused(
            "ErrImagePull",
            f"image {container.image!r}: processkube has no container runtime and runs only {', '.join(self.images)}; {self.remedy}",
        )

    def command_line(self, container: ContainerSpec, variables: Mapping[str, str], *, python: str, pod_ip: str) -> tuple[str, ...]:
        """Return the command line that runs a container. Raises PodRefused for an unknown image or command."""
        image = self.image_of(container)
        command = expand_all(container.command, variables)
        arguments = expand_all(container.args, variables)
        if not command and (not arguments or arguments[0].startswith("-")):
            command = image.command
        line = _at_own_address(_program_line(image, (*command, *arguments), python=python, where=container.image), {_EVERY_ADDRESS}, pod_ip)
        if image.listens and not any(argument == image.listens[0] or argument.startswith(f"{image.listens[0]}=") for argument in line):
            line += tuple(part.format(address=pod_ip) for part in image.listens)
        return line

    def command_within(self, container: ContainerSpec, command: tuple[str, ...], *, python: str, pod_ip: str) -> tuple[str, ...]:
        """Return the command line of a probe or hook in a running container. Raises PodRefused.

        The pod's address takes the place of the loopback address in it.
        """
        line = _program_line(self.image_of(container), command, python=python, where=container.image)
        return _at_own_address(line, _OWN_ADDRESSES, pod_ip)

    def stop_signal(self, container: ContainerSpec) -> int:
        """Return the signal that asks the container to end. Raises PodRefused."""
        return self.image_of(container).stop_signal

    def user_of(self, container: ContainerSpec) -> int:
        """Return the id of the image's user, whose group has the same id. Raises PodRefused."""
        return self.image_of(container).user[1]

    def account_files(self, container: ContainerSpec) -> dict[str, str]:
        """Return the image's own account files, by path. Raises PodRefused."""
        name, number = self.image_of(container).user
        return {
            "/etc/passwd": f"root:x:0:0:root:/root:/usr/sbin/nologin\n{name}:x:{number}:{number}::/:/usr/sbin/nologin\n",
            "/etc/group": f"root:x:0:\n{name}:x:{number}:\n",
        }

    def variables_of(self, container: ContainerSpec, *, pod_ip: str) -> dict[str, str]:
        """Return the environment that the image gives the container. Raises PodRefused."""
        return {name: value.format(address=pod_ip) for name, value in self.image_of(container).variables.items()}


BUILT_IN = Catalogue(
    images={"python": Image(command=("python3",), programs={"python": ("{python}",), "python3": ("{python}",)})},
    remedy="give the kubelet a catalogue that has it (--images), or use a real cluster",
)
"""The catalogue of a kubelet that is given none: only the Python that runs the kubelet."""


def load_catalogue(place: str) -> Catalogue:
    """Return the catalogue at `module:name`. Raises ProcesskubeError for a place that has none."""
    module, _, name = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        found = None
    if not isinstance(found, Catalogue):
        raise ProcesskubeError(f"--images: {place!r} has no Catalogue; write module:name of one that can be imported")
    return found


def _program_line(image: Image, command: tuple[str, ...], *, python: str, where: str) -> tuple[str, ...]:
    """Return the command with its program as it is found on this machine. Raises PodRefused for a program that the
    image does not have.
    """
    program = command[0].rpartition("/")[2]
    if program not in image.programs:
        raise PodRefused("RunContainerError", f"command {command[0]!r} is not in image {where}; it has {', '.join(image.programs)} only")
    line, places = image.programs[program], {"python": python, "folder": str(PurePath(python).parent)}
    for name, find in image.places.items():
        if any(f"{{{name}}}" in part for part in line):
            places[name] = str(find())
    return (*(part.format(**places) for part in line), *command[1:])


def own_addresses(variables: Mapping[str, str], pod_ip: str) -> dict[str, str]:
    """Return a container's environment in which the pod's address replaces addresses that mean the pod itself."""
    return {name: pod_ip if value == _EVERY_ADDRESS else value for name, value in variables.items()}


def _at_own_address(line: tuple[str, ...], addresses: "frozenset[str] | set[str]", pod_ip: str) -> tuple[str, ...]:
    """Return the command line in which the pod's address replaces addresses that mean the pod itself.

    Pods share the machine's network, each with an address of its own: two pods that listened on every address would
    collide.
    """

    def own(argument: str) -> str:
        name, equals, value = argument.rpartition("=")
        return f"{name}{equals}{pod_ip}" if value in addresses else argument

    return tuple(own(argument) for argument in line)

"""The catalogue of images: which program of this machine runs for a container's image and command.

There is no container runtime. The registry, the tag and the digest of an image are ignored, so the installed version
always runs.
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
    """One image of the catalogue.

    - `command`: the image's default command.
    - `programs`: program's name → the command line that runs it here. `{python}` stands for the Python that runs the
      kubelet, and `{folder}` for that Python's folder. Any other name in braces is a key of `places`, whose function is
      called when a container starts.
    - `listens`: arguments that are added to a command that lacks them; `{address}` stands for the pod's address.
    - `variables`: the environment that the image gives its containers.
    - `user`: name and id of the user that runs the image, unless the manifest names another user.
    - `stop_signal`: the signal that asks a container to end.
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
    """The images of a kubelet, by repository. `remedy` says in messages what a person can do if an image is missing
    here.
    """

    images: Mapping[str, Image]
    remedy: str = "use a real cluster for this image"

    def image_of(self, container: ContainerSpec) -> Image:
        """Return the container's image. Raises PodRefused if the catalogue does not have it."""
        repository = re.sub(r"(@[^/]*|:[^/]*)$", "", re.sub(r"@.*$", "", container.image))
        for name, image in self.images.items():
            if repository == name or repository.endswith(f"/{name}"):
                return image
        raise PodRefused(
            "ErrImagePull",
            f"image {container.image!r}: processkube has no container runtime and runs only {', '.join(self.images)}; {self.remedy}",
        )

    def command_line(self, container: ContainerSpec, variables: Mapping[str, str], *, python: str, pod_ip: str) -> tuple[str, ...]:
        """Return the command line that runs a container. Raises PodRefused for an image or a program that the catalogue
        lacks.
        """
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
        """Return the command line that runs the probe or hook `command` in a container. The loopback address in the
        command's arguments is replaced by the pod's address. Raises PodRefused.
        """
        line = _program_line(self.image_of(container), command, python=python, where=container.image)
        return _at_own_address(line, _OWN_ADDRESSES, pod_ip)

    def stop_signal(self, container: ContainerSpec) -> int:
        """Return the number of the signal that asks the container to end. Raises PodRefused."""
        return self.image_of(container).stop_signal

    def user_of(self, container: ContainerSpec) -> int:
        """Return the id of the image's user. The user's group has the same id. Raises PodRefused."""
        return self.image_of(container).user[1]

    def account_files(self, container: ContainerSpec) -> dict[str, str]:
        """Return the image's files with accounts: path → text, for /etc/passwd and /etc/group. Raises PodRefused."""
        name, number = self.image_of(container).user
        return {
            "/etc/passwd": f"root:x:0:0:root:/root:/usr/sbin/nologin\n{name}:x:{number}:{number}::/:/usr/sbin/nologin\n",
            "/etc/group": f"root:x:0:\n{name}:x:{number}:\n",
        }

    def variables_of(self, container: ContainerSpec, *, pod_ip: str) -> dict[str, str]:
        """Return the environment variables that the image gives the container. Raises PodRefused."""
        return {name: value.format(address=pod_ip) for name, value in self.image_of(container).variables.items()}


BUILT_IN = Catalogue(
    images={"python": Image(command=("python3",), programs={"python": ("{python}",), "python3": ("{python}",)})},
    remedy="give the kubelet a catalogue that has it (--images), or use a real cluster",
)
"""The catalogue of a kubelet that was started without `--images`. Its only image runs the kubelet's own Python."""


def load_catalogue(place: str) -> Catalogue:
    """Return the catalogue at `place`, which is written `module:name`. Raises ProcesskubeError if there is none."""
    module, _, name = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        found = None
    if not isinstance(found, Catalogue):
        raise ProcesskubeError(f"--images: {place!r} has no Catalogue; write the module:name of a Catalogue that can be imported")
    return found


def _program_line(image: Image, command: tuple[str, ...], *, python: str, where: str) -> tuple[str, ...]:
    """Return the command with the command line that runs its program on this machine. Raises PodRefused if the image
    does not have the program.
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
    """Return a container's environment with the pod's address in place of the address 0.0.0.0."""
    return {name: pod_ip if value == _EVERY_ADDRESS else value for name, value in variables.items()}


def _at_own_address(line: tuple[str, ...], addresses: "frozenset[str] | set[str]", pod_ip: str) -> tuple[str, ...]:
    """Return the command line with the pod's address in place of each of `addresses`.

    All pods share the machine's network. Two pods that listen on every address would collide, so each pod listens on
    its own address.
    """

    def own(argument: str) -> str:
        name, equals, value = argument.rpartition("=")
        return f"{name}{equals}{pod_ip}" if value in addresses else argument

    return tuple(own(argument) for argument in line)

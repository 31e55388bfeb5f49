"""The catalogue given to a kubelet, and the kubelet's built-in one."""

import re

import pytest

from processkube.errors import ProcesskubeError
from processkube.kubelet.images import BUILT_IN, Catalogue, Image, load_catalogue, own_addresses
from processkube.kubelet.pod_specs import ContainerSpec
from processkube.kubelet.refusals import PodRefused


def test_without_a_catalogue_the_kubelet_has_its_own_python() -> None:
    container = ContainerSpec(name="web", image="python:3.13", command=("python3", "-m", "http.server"), args=("--bind", "0.0.0.0"))
    assert BUILT_IN.command_line(container, {}, python="/bin/py", pod_ip="127.40.0.7") == (
        *("/bin/py", "-m", "http.server", "--bind", "127.40.0.7"),
    )


def test_a_place_is_looked_up_when_a_container_starts_that_needs_it() -> None:
    looked: list[str] = []

    def find() -> str:
        looked.append("bin")
        return "/opt/bin"

    image = Image(command=("serve",), programs={"serve": ("{bin}/serve",), "check": ("true",)}, places={"bin": find})
    images = Catalogue(images={"acme/web": image})
    container = ContainerSpec(name="web", image="registry.example.com:5000/acme/web@sha256:ab")
    assert images.command_within(container, ("check",), python="py", pod_ip="127.40.0.7") == ("true",)
    assert looked == []
    assert images.command_line(container, {}, python="py", pod_ip="127.40.0.7") == ("/opt/bin/serve",)


def test_an_unknown_image_is_refused_with_the_catalogues_remedy() -> None:
    with pytest.raises(PodRefused, match=r"image 'redis:7'.*runs only python; give the kubelet a catalogue"):
        BUILT_IN.image_of(ContainerSpec(name="cache", image="redis:7"))


@pytest.mark.parametrize("place", ["", "json", "json:", ":x", "no_such_module:IMAGES", "json:NOTHING", "json:dumps"])
def test_a_place_without_a_catalogue_is_named_with_the_remedy(place: str) -> None:
    with pytest.raises(ProcesskubeError, match=rf"^--images: {re.escape(repr(place))} .*write the module:name of"):
        load_catalogue(place)


def test_an_environment_that_says_every_address_means_the_pods() -> None:
    """Otherwise two pods of two clusters on one machine would want the same port, as the operator's for its health."""
    given = {"HEALTH_HOST": "0.0.0.0", "HEALTH_PORT": "8081", "NETWORK": "0.0.0.0/0"}
    assert own_addresses(given, "127.40.0.7") == {**given, "HEALTH_HOST": "127.40.0.7"}

"""A stand-in for the program `helm`, over Helm's library, with the commands that the documents use.

HELM_MACHINE_VALUES has values that the chart needs to run on one machine; values of the command line override them.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from fairlead_testing.running.helm import ROOT, Helm


@click.group()
def helm() -> None:
    """Install and uninstall releases."""


@helm.command()
@click.argument("release")
@click.argument("chart")
@click.option("-n", "--namespace", required=True)
@click.option("--create-namespace", is_flag=True, required=True)
@click.option("--set", "assignments", multiple=True)
def install(release: str, chart: str, namespace: str, create_namespace: bool, assignments: tuple[str, ...]) -> None:
    values: dict[str, Any] = json.loads(os.environ["HELM_MACHINE_VALUES"])
    for assignment in assignments:
        _assign(values, assignment)
    _helm(namespace).install(release, values, ROOT / chart, create_namespace=create_namespace)


@helm.command()
@click.argument("release")
@click.option("-n", "--namespace", required=True)
def uninstall(release: str, namespace: str) -> None:
    _helm(namespace).uninstall(release)


def _helm(namespace: str) -> Helm:
    return Helm(Path(os.environ["KUBECONFIG"]), namespace)


def _assign(values: dict[str, Any], assignment: str) -> None:
    path, _, text = assignment.partition("=")
    *above, last = path.split(".")
    for name in above:
        values = values.setdefault(name, {})
    values[last] = {"true": True, "false": False}.get(text, text)


def written_to(folder: Path) -> Path:
    """Write the program `helm` to a folder and return the folder, for PATH."""
    folder.mkdir()
    program = folder / "helm"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m fairlead_testing.running.helm_program \"$@\"\n")
    program.chmod(0o755)
    return folder


if __name__ == "__main__":
    helm()

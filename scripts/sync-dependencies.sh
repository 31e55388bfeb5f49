#!/bin/sh
# Installs what uv.lock says into an environment: sync-dependencies.sh ENVIRONMENT [further arguments of `uv sync`]
set -e
here=$1; shift
UV_PROJECT_ENVIRONMENT="$here" .venv/bin/uv sync --frozen --all-extras --quiet "$@"
# xds-protos has older modules of the same names as opentelemetry-proto's. Which of the two is written last differs from
# machine to machine, and with the older ones no trace can be exported: write the right ones again.
version=$("$here/bin/python" -c 'from importlib.metadata import version; print(version("opentelemetry-proto"))')
.venv/bin/uv pip install --quiet --python "$here/bin/python" --reinstall --no-deps "opentelemetry-proto==$version"

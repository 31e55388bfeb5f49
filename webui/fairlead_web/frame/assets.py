"""Serves static files below one path that contains a hash of their content: `/static/<hash>/js/main.js`.

Browsers may cache the files forever, and scripts can load others by relative paths. `vendor/CHECKSUMS` lists
third-party files with version, licence and SHA-256; `verify_vendor` compares them with the files.

The scripts that every page loads are joined into one file, and so is each group of scripts that is loaded later.
Separate modules would be two dozen responses, whose headers are a third as large as their content, and a browser would
discover each only after reading the module that imports it. Each joined script still has its own scope and runs once.
Only the forms of import and export that these scripts use are supported; any other form is an error when the process
starts.
"""

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

STATIC = Path(__file__).parent.parent / "static"
HTMX_PARTS = ("vendor/htmx.min.js", "vendor/hx-sse.min.js")
HTMX = "vendor/htmx-with-sse.js"
"""The file that contains both htmx and its SSE extension. htmx starts soon after it is loaded, and would miss an
extension that is loaded later.
"""
CSS_PARTS = tuple(f"css/{name}.css" for name in ("base", "layout", "parts", "tables", "forms", "pictures", "print"))
CSS = "css/fairlead.css"
"""The file that contains the style sheets that every page needs. A page that needs further style sheets names them in
its head block.
"""
SCRIPTS = "js/"
"""The folder of the web UI's own scripts. They are joined (`joined`), and only the joined files are served."""

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".txt": "text/plain; charset=utf-8",
}

_COMMENTS = re.compile(rb"^[ \t]*/\*(?:.|\n)*?\*/[ \t]*\n|^[ \t]*//.*\n", re.MULTILINE)
_TRAILING = re.compile(rb"(?<=[;{},)\]]) +// [^\n\"`]*$", re.MULTILINE)
_INDENTATION = re.compile(rb"^[ \t]+|^\n", re.MULTILINE)
_CSS_SPACE = re.compile(rb'("[^"\n]*")|\s*([{};,])\s*|(?<=[\w-]): +')


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One static file: its body, plain and compressed, and its content type."""

    body: bytes
    packed: bytes
    content_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assets:
    """All static files in memory; `version` is a hash of all of them."""

    version: str
    files: dict[str, Asset]

    def path(self, name: str) -> str:
        """Return the path of a static file, including the base path. Raises KeyError for a name that does not exist."""
        _ = self.files[name]
        return f"/static/{self.version}/{name}"

    async def serve(self, request: Request) -> Response:
        """Respond to a request for `/static/{version}/{name}`. Another version than the present one gets 404, so that
        no page mixes two releases.
        """
        asset = self.files.get(request.path_params["name"])
        if asset is None or request.path_params["version"] != self.version:
            return Response("No such file.\n", 404, media_type="text/plain")
        headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("accept-encoding", "") and len(asset.packed) < len(asset.body):
            return Response(asset.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=asset.content_type)
        return Response(asset.body, headers=headers, media_type=asset.content_type)


@cache
def load_assets(folder: Path = STATIC) -> Assets:
    """Read every file of a known type below `folder`, once in a process: joining and compressing take a tenth of a
    second.
    """
    files: dict[str, Asset] = {}
    scripts: dict[str, str] = {}
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix not in _TYPES:
            continue
        body = path.read_bytes()
        name = path.relative_to(folder).as_posix()
        digest.update(name.encode() + b"\0" + body)
        if name.startswith(SCRIPTS):
            scripts[path.name] = body.decode()
            continue
        ours = path.suffix == ".css" and not name.startswith("vendor/")
        files[name] = _asset(_shortened_css(body) if ours else body, path.suffix)
    if ENTRY in scripts:
        files |= {SCRIPTS + name: _asset(_shortened(script.encode()), ".js") for name, script in joined(scripts).items()}
    if all(name in files for name in HTMX_PARTS):
        files[HTMX] = _asset(b";\n".join(files[name].body for name in HTMX_PARTS), ".js")
    if all(name in files for name in CSS_PARTS):
        files[CSS] = _asset(b"\n".join(files[name].body for name in CSS_PARTS), ".css")
    return Assets(version=digest.hexdigest()[:16], files=files)


def _shortened(body: bytes) -> bytes:
    """Return a script or style sheet without indentation, without comments on lines of their own, and without comments
    at the end of a line that contain no quotes. This saves a sixth of the compressed bytes. The rest of a line is not
    changed, because that would need a parser.
    """
    return _INDENTATION.sub(b"", _TRAILING.sub(b"", _COMMENTS.sub(b"", body)))


def _shortened_css(body: bytes) -> bytes:
    """Return a style sheet without comments on lines of their own, and without the spaces around `{};,` and after the
    colon of a declaration. Outside strings, these spaces mean nothing. In a selector, no colon is followed by a space.
    """
    return _CSS_SPACE.sub(lambda found: found[1] or found[2] or b":", _shortened(body))


def _asset(body: bytes, suffix: str) -> Asset:
    return Asset(body=body, packed=gzip.compress(body, 9, mtime=0), content_type=_TYPES[suffix])


def verify_vendor(folder: Path = STATIC / "vendor") -> list[str]:
    """Return the vendored files that do not match `CHECKSUMS`, or are not listed there. Lines of that file are `sha256
    file`, or comments with #.
    """
    listed = {
        line.split()[1]: line.split()[0]
        for line in (folder / "CHECKSUMS").read_text().splitlines()
        if line.strip() and not line.startswith("#")
    }
    present = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.name != "CHECKSUMS"}
    return sorted(name for name in listed.keys() | present.keys() if listed.get(name) != present.get(name))


ENTRY = "main.js"
"""The script that every page loads."""
_IMPORT = re.compile(r'^import (?:\{ ([^}]+) \}|\* as (\w+)) from "\./(\w+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.MULTILINE)
_LATER = re.compile(r'\bimport\("\./(\w+\.js)"\)')
_OTHER = re.compile(r"^(?:import|export)\b(?!\().*", re.MULTILINE)


def joined(scripts: Mapping[str, str]) -> dict[str, str]:
    """Return the joined scripts by name: first the script of every page, with all its imports; then the scripts that
    are loaded later, each with all imports that are not in the first. Raises ValueError for an unsupported form of
    import or export.
    """
    later = {name for script in scripts.values() for name in _LATER.findall(script)}
    shared = _order(scripts, ENTRY)[:-1]
    found = {}
    for entry in (ENTRY, *sorted(later)):
        own = [name for name in _order(scripts, entry)[:-1] if entry == ENTRY or name not in shared]
        outside = [] if entry == ENTRY else [name for name in shared if any(_imports(scripts[one], name) for one in (*own, entry))]
        parts = [f'import {{ {", ".join(map(_scope, outside))} }} from "./{ENTRY}";\n'] if outside else []
        parts += [_scoped(name, scripts[name]) for name in own]
        parts.append(_linked(entry, scripts[entry]))
        if entry == ENTRY:
            parts.append(f"export {{ {', '.join(map(_scope, shared))} }};\n")
        found[entry] = "".join(parts)
    return found


def _order(scripts: Mapping[str, str], entry: str) -> list[str]:
    """Return the names of a script and of everything that it imports, in the order in which they must run."""
    found: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"{' imports '.join((*above, name))}: scripts that import each other cannot be joined")
        for match in _IMPORT.finditer(scripts[name]):
            if match[3] not in found:
                visit(match[3], (*above, name))
        if name not in found:
            found.append(name)

    visit(entry, ())
    return found


def _imports(script: str, name: str) -> bool:
    return any(match[3] == name for match in _IMPORT.finditer(script))


def _scope(name: str) -> str:
    return f"${name.removesuffix('.js')}"


def _scoped(name: str, script: str) -> str:
    """Return the script wrapped in a function, so that it has its own scope. The function returns the script's
    exports.
    """
    names = _EXPORT.findall(script)
    return f"const {_scope(name)} = (() => {{\n{_EXPORT.sub('', _linked(name, script))}return {{ {', '.join(names)} }};\n}})();\n"


def _linked(name: str, script: str) -> str:
    """Return the script with its import statements replaced by references to scripts that ran before."""

    def link(match: re.Match[str]) -> str:
        return f"const {match[2] or '{ ' + match[1].replace(' as ', ': ') + ' }'} = {_scope(match[3])};\n"

    linked = _IMPORT.sub(link, script)
    unknown = _OTHER.search(_EXPORT.sub("", linked))
    if unknown:
        raise ValueError(f"{name}: {unknown[0]!r} is not an import or export that can be joined")
    return linked

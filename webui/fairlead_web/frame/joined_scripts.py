"""Joins the scripts of pages: what a page always loads becomes one file, and so does each part that it loads later.

As modules of their own they are two dozen answers, of which the headers weigh as much as a third of what is in them,
and each is found only once the one that imports it was read. Joined, each still has its own scope and runs once. Only
the forms of import and export that our scripts have are known; any other is an error when the process starts.
"""

import re
from collections.abc import Mapping

ENTRY = "main.js"
"""What every page loads."""
_IMPORT = re.compile(r'^import (?:\{ ([^}]+) \}|\* as (\w+)) from "\./(\w+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.MULTILINE)
_LATER = re.compile(r'\bimport\("\./(\w+\.js)"\)')
_OTHER = re.compile(r"^(?:import|export)\b(?!\().*", re.MULTILINE)


def joined(scripts: Mapping[str, str]) -> dict[str, str]:
    """By name the script of every page and those that some script loads later, each with all that it imports; what
    every page has is not in the others. Raises ValueError for an import or export of another form.
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
    """A script and all that it imports, each after what it needs."""
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
    """The script as a scope of its own, which gives what it exports."""
    names = _EXPORT.findall(script)
    return f"const {_scope(name)} = (() => {{\n{_EXPORT.sub('', _linked(name, script))}return {{ {', '.join(names)} }};\n}})();\n"


def _linked(name: str, script: str) -> str:
    """The script with its imports as names of the scopes before it."""

    def link(match: re.Match[str]) -> str:
        return f"const {match[2] or '{ ' + match[1].replace(' as ', ': ') + ' }'} = {_scope(match[3])};\n"

    linked = _IMPORT.sub(link, script)
    unknown = _OTHER.search(_EXPORT.sub("", linked))
    if unknown:
        raise ValueError(f"{name}: {unknown[0]!r} is no import or export that can be joined")
    return linked

"""The control API's folders are its subjects. In each, routes use the store, and both use the rules."""

import ast
from collections.abc import Iterator
from pathlib import Path

API = Path(__file__).parents[3] / "controlplane" / "fairlead_api"
BELOW = {"http", "infra"}
ADAPTERS = ("routes", "store", "tables")
HTTP_OF_ACCESS = "access.guards"
"""The only other module that imports FastAPI: it gives routes the checks of their callers."""


def subjects() -> list[Path]:
    """Return the folders of subjects."""
    return [folder for folder in sorted(API.iterdir()) if (folder / "__init__.py").exists() and folder.name not in BELOW]


def modules(folder: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield every module of a folder as subject.name, with its imports."""
    for path in sorted(folder.rglob("*.py")):
        if path.name != "__init__.py":
            yield ".".join(path.relative_to(API).with_suffix("").parts), imports(ast.parse(path.read_text(encoding="utf-8")))


def imports(tree: ast.Module) -> set[str]:
    """Return the names of imported modules, and of imported members that may be modules."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def adapter(name: str) -> str | None:
    """Return `routes`, `store` or `tables` if a module of a subject belongs to one of them; None if it has rules."""
    part = name.split(".")[1]
    return next((kind for kind in ADAPTERS if part == kind or part.endswith(f"_{kind}")), None)


def parts(name: str) -> str | None:
    """Return the same for a module's full name; None if it is not in a subject."""
    names = name.split(".")
    is_of_subject = names[0] == "fairlead_api" and len(names) > 2 and names[1] not in BELOW
    return adapter(".".join(names[1:])) if is_of_subject else None


def knowing() -> set[str]:
    """Return the modules below the subjects that import SQLAlchemy."""
    return {f"fairlead_api.{name}" for name, found in modules(API / "infra") if any(one.startswith("sqlalchemy") for one in found)}


def test_every_subject_has_its_routes_and_says_what_it_is() -> None:
    assert len(subjects()) > 15
    silent = [folder.name for folder in subjects() if not (folder / "__init__.py").read_text().startswith('"""')]
    assert silent == []
    assert [folder.name for folder in subjects() if not (folder / "routes.py").exists()] == []


def test_rules_know_neither_fastapi_nor_sqlalchemy_nor_what_does() -> None:
    adapters = {"fairlead_api.tables", *knowing()}
    wrong = [
        f"{name} imports {one}"
        for folder in subjects()
        for name, found in modules(folder)
        if adapter(name) is None and name != HTTP_OF_ACCESS
        for one in sorted(found)
        if one.split(".")[0] in {"fastapi", "starlette", "sqlalchemy"} or parts(one) is not None or one in adapters
    ]
    assert wrong == []


def test_a_store_knows_no_routes_and_no_http() -> None:
    wrong = [
        f"{name} imports {one}"
        for folder in subjects()
        for name, found in modules(folder)
        if adapter(name) == "store"
        for one in sorted(found)
        if one.split(".")[0] in {"fastapi", "starlette"} or parts(one) == "routes" or one.startswith("fairlead_api.http")
    ]
    assert wrong == []


def test_tables_know_only_columns() -> None:
    allowed = ("fairlead_api.infra.columns", "sqlalchemy", "fairlead.", "fairlead_client.", "typing", "collections")
    wrong = [
        f"{name} imports {one}"
        for folder in subjects()
        for name, found in modules(folder)
        if adapter(name) == "tables"
        for one in sorted(found)
        if not one.startswith(allowed)
    ]
    assert wrong == []

"""Templates: each has its context and renders, and none needs anything that the content security policy forbids."""

import re
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import pytest
from jinja2 import Environment, meta, nodes
from jinja2.exceptions import UndefinedError

from fairlead_web.app import PAGE_MODULES
from fairlead_web.frame.assets import CSS, HTMX, STATIC, load_assets, verify_vendor
from fairlead_web.frame.rendering import TEMPLATES, Context, Renderer
from fairlead_web.frame.shells import Preferences
from fairlead_web.pages import access

SOURCES = sorted(TEMPLATES.rglob("*.html"))
CONTEXTS = [
    found
    for module in PAGE_MODULES
    for found in vars(module).values()
    if isinstance(found, type) and issubclass(found, Context) and found is not Context
]
FORBIDDEN = {
    "inline event handler": r"""\son[a-z]+=["']""",
    "inline style": r"""\sstyle\s*=""",
    "style element": r"<style",
    "inline script": r"<script(?![^>]*\ssrc=)",
    "hx-on": r"hx-on",
    "trigger filter": r"""hx-trigger="[^"]*\[""",
    "script value": r"""\bjs:|javascript:""",
    "address off this site": r"""(?:src|href|action)="(?:https?:)?//""",
    "unescaped value": r"\|\s*safe\b",
    "link without the base path": r"""(?:href|action|src)="/""",
}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.relative_to(TEMPLATES).as_posix())
@pytest.mark.parametrize("what", FORBIDDEN)
def test_templates_hold_nothing_the_policy_forbids(source: Path, what: str) -> None:
    assert re.findall(FORBIDDEN[what], source.read_text()) == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.relative_to(TEMPLATES).as_posix())
def test_templates_fit_a_screen(source: Path) -> None:
    assert [line for line in source.read_text().splitlines() if len(line) > 120] == []


def test_indentation_stays_in_the_templates_and_the_space_between_words_in_the_page() -> None:
    renderer = Renderer(load_assets(), "", lambda: datetime.now(UTC))
    page = access.LoginPage(
        title="t", preferences=Preferences(), token="", next="/", problem=None, ended=True, modes=(), audience=None, provider=None
    )
    lines = renderer.render(page).splitlines()
    assert max(len(line) - len(line.lstrip()) for line in lines) <= 1


def test_every_page_template_has_exactly_one_context() -> None:
    pages = sorted(path.relative_to(TEMPLATES).as_posix() for path in SOURCES if path.parent.name == "pages")
    assert sorted(context.template for context in CONTEXTS if context.template.startswith("pages/")) == pages


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.__name__)
def test_a_template_uses_only_and_all_of_its_contexts_fields(context: type[Context]) -> None:
    environment = Environment(autoescape=True)
    renderer = Renderer(load_assets(), "", lambda: datetime.now(UTC))
    names: set[str] = set()
    layout = "layouts/bare.html" if "shell" not in {f.name for f in fields(context)} else "layouts/page.html"
    extends = "{% extends" in (TEMPLATES / context.template).read_text()
    for template in (context.template, *([layout] if extends else [])):
        environment.filters.update(dict.fromkeys(renderer.filter_names, str))
        tree = environment.parse((TEMPLATES / template).read_text())
        set_here = {name.name for name in tree.find_all(nodes.Name) if name.ctx == "store"}
        set_here |= {macro.name for macro in tree.find_all(nodes.Macro)}
        set_here |= {name for found in tree.find_all(nodes.FromImport) for name in found.names if isinstance(name, str)}
        names |= meta.find_undeclared_variables(tree) - set_here
    globals_ = set(renderer.global_names)
    assert names - globals_ == {field.name for field in fields(context)}


def test_an_undefined_name_is_an_error_and_not_an_empty_string() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Poor(Context):
        template: ClassVar[str] = "pages/login.html"

    renderer = Renderer(load_assets(), "", lambda: datetime.now(UTC))
    with pytest.raises(UndefinedError):
        renderer.render(Poor())


def test_a_block_that_does_not_exist_is_named() -> None:
    renderer = Renderer(load_assets(), "", lambda: datetime.now(UTC))
    page = access.LoginPage(
        title="t", preferences=Preferences(), token="", next="/", problem=None, ended=False, modes=(), audience=None, provider=None
    )
    with pytest.raises(LookupError, match="results"):
        renderer.render(page, "results")


def test_vendored_files_are_what_their_checksums_say() -> None:
    assert verify_vendor() == []
    assert verify_vendor(Path(__file__).parents[3] / "e2e" / "web" / "vendor") == []


def test_assets_have_one_version_and_htmx_comes_with_its_extension() -> None:
    assets = load_assets()
    assert re.fullmatch("[0-9a-f]{16}", assets.version)
    assert b"4.0.1" in assets.files[HTMX].body
    assert b"hx-sse" in assets.files[HTMX].body
    with pytest.raises(KeyError):
        assets.path("js/nothing.js")


def test_our_files_are_sent_without_comments_and_those_of_others_as_they_are() -> None:
    assets = load_assets()
    for name, asset in assets.files.items():
        if not (STATIC / name).is_file() or name.startswith("js/"):
            continue  # those are joined
        written = (STATIC / name).read_bytes()
        if name.startswith("vendor/") or not name.endswith(".css"):
            assert asset.body == written
        else:
            served, said = (re.sub(r"/\*.*?\*/|\s", "", text.decode(), flags=re.DOTALL) for text in (asset.body, written))
            assert served == said
            assert len(asset.body) <= len(written)
    for name in ("js/main.js", "js/heatmap.js", "js/charts.js", "js/palette.js"):
        lines = assets.files[name].body.decode().splitlines()
        assert all(line == line.lstrip() and line and not line.startswith("//") for line in lines)


def test_scripts_import_only_files_that_exist() -> None:
    assets = load_assets()
    for name, asset in assets.files.items():
        if name.startswith("js/"):
            for other in re.findall(r"""(?:from|import\()\s*["']\./([^"']+)["']""", asset.body.decode()):
                assert f"js/{other}" in assets.files


@pytest.mark.parametrize("lazily", [(), ("heatmap.js",), ("charts.js",)], ids=["plain", "heatmap", "charts"])
def test_a_first_visit_weighs_little(lazily: tuple[str, ...]) -> None:
    assets = load_assets()
    needed, todo = set[str](), ["main.js", *lazily]
    while todo:
        name = f"js/{todo.pop()}"
        if name not in needed:
            needed.add(name)
            todo += re.findall(r"""from\s*["']\./([^"']+)["']""", assets.files[name].body.decode())
    assert sum(len(assets.files[name].packed) for name in (HTMX, CSS, *needed)) < 45_000

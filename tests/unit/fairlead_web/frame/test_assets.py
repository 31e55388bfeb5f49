"""Scripts that a page loads together come as one file, in which each keeps its own names."""

import pytest

from fairlead_web.frame.assets import STATIC, joined

SCRIPTS = {
    "words.js": "const top = 1;\nexport function say() { return top; }\nexport const LOUD = 2;\n",
    "pages.js": 'import { say as told } from "./words.js";\n\nexport const page = () => told();\n',
    "main.js": 'import * as pages from "./pages.js";\n\npages.page();\nimport("./map.js").then((map) => map.start());\n',
    "lines.js": 'import { LOUD } from "./words.js";\nexport class Line {}\n',
    "map.js": 'import { Line } from "./lines.js";\nexport async function start() { return new Line(); }\n',
    "unused.js": "export const nothing = 0;\n",
}


def test_what_every_page_loads_is_one_script_in_the_order_of_what_needs_what() -> None:
    main = joined(SCRIPTS)["main.js"]
    assert main == (
        "const $words = (() => {\nconst top = 1;\nfunction say() { return top; }\nconst LOUD = 2;\nreturn { say, LOUD };\n})();\n"
        "const $pages = (() => {\nconst { say: told } = $words;\n\nconst page = () => told();\nreturn { page };\n})();\n"
        'const pages = $pages;\n\npages.page();\nimport("./map.js").then((map) => map.start());\n'
        "export { $words, $pages };\n"
    )


def test_what_is_loaded_later_has_all_it_needs_but_what_every_page_has() -> None:
    found = joined(SCRIPTS)
    assert found.keys() == {"main.js", "map.js"}, "what nobody imports is not served"
    assert found["map.js"] == (
        'import { $words } from "./main.js";\n'
        "const $lines = (() => {\nconst { LOUD } = $words;\nclass Line {}\nreturn { Line };\n})();\n"
        "const { Line } = $lines;\nexport async function start() { return new Line(); }\n"
    )


@pytest.mark.parametrize("line", ["export default 1;", 'import pages from "./words.js";', 'export * from "./words.js";', "export let x;"])
def test_another_form_of_import_or_export_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match=r"lines\.js"):
        joined({**SCRIPTS, "lines.js": f'import {{ LOUD }} from "./words.js";\nexport class Line {{}}\n{line}\n'})


def test_scripts_that_import_each_other_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"main.js imports pages.js imports main.js"):
        joined({"main.js": 'import { a } from "./pages.js";\n', "pages.js": 'import { b } from "./main.js";\nexport const a = 1;\n'})


def test_every_script_of_ours_is_in_one_of_them() -> None:
    scripts = {path.name: path.read_text() for path in (STATIC / "js").iterdir()}
    found = joined(scripts)
    everything = "".join(found.values())
    assert found.keys() == {
        "main.js",
        "asking.js",
        "heatmap.js",
        "heatmap_again.js",
        "heatmap_awaited.js",
        "charts.js",
        "explorer.js",
        "keys.js",
        "palette.js",
        "present_values.js",
        "restored_forms.js",
    }
    assert all(name in found or f"const ${name.removesuffix('.js')} = (() => {{" in everything for name in scripts)

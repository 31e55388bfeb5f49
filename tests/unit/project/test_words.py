"""Prose reads at first sight: habits that stop a reader are counted in docstrings, messages, pages and documents.

The counts may only fall. Whoever edits an area lowers its ceiling; at zero its line is deleted.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HABITS = {
    "told": (r"\b(?:un)?told\b(?! apart| from)(?! what)", "reported, sent, known"),
    "learnt": (r"\blearnt\b", "measured, trained"),
    "anew": (r"\banew\b", "again, restarts"),
    "for ever": (r"\bfor ever\b", "permanently, forever"),
    "by itself": (r"\bby (?:it|them)sel(?:f|ves)\b", "alone, separately, automatically"),
    "under way": (r"\bunder way\b", "in progress, in flight"),
    "goes by": (r"\b(?:goe?s?|going|went) by\b(?! (?:its|the) name)", "uses, follows"),
    "is none": (r"(?<![Tt]here )\b(?:is|are|was|were) none\b(?! of)", "does not exist, is not a …"),
    "what came": (r"\b[Ww]hat (?:came|comes|has come)\b(?! (?:after|before|next))", "the traffic, the result"),
    "of X, Y": (r"(?:^|[.:;] )(?:What of |Of (?:a|an|the|each|every|several|some|such|whom|what) )", "the subject first"),
    "headless who": (
        r"(?:^|[.:;] )Who(?:ever)? (?:has|sees|asks|sends|waits|wants|gets|hangs|calls|knows|makes|goes|stops)\b[^?]*$|\b(?:by|of|for|to|than|as) who\b",
        "a client that …",
    ),
    "as ever": (r"\bas ever\b", "as usual"),
    "in the mean": (r"\bin the mean\b(?!time)", "on average"),
    "so many": (
        r"\b(?:[Ss]o many|[Ss]o much (?:later|time|more)|(?:of|for|in|after|with|about|only|first|took|take|takes|by) so (?:long|few|much))\b",
        "this many, N",
    ),
    "does not tell": (r"\bdo(?:es)? not tell\b(?= ?[.,;:)]|$)|\btells? (?:it|no|none|nothing)\b(?! apart)", "reports, shows, says"),
    "is no": (
        r"(?<![Tt]here )\b(?:is|are|was|were) no (?!longer|more\b|less|fewer|smaller|shorter|older|concern|room|answer|need|way)(?=[a-z])",
        "is not a, are not",
    ),
    "no more": (r"\b(?:counts?|waits?|answers?|known|exists?) no more\b(?! than)", "no longer"),
    "Most X": (
        r"^Most (?:rows|bytes|requests|tokens|instances|keys|items|pools|decisions|moves|homes|cells|hits|steps)\b",
        "maximum number of X",
    ),
    "X without it": (r"; [\w' -]{1,40} without it\.|; without, ", "default: X"),
    "for want of": (r"\bfor want of\b", "because … is missing"),
    "paid off": (r"\b(?:paid|pays?) off\b", "faster than staying"),
    "tells of": (r"\b(?:tells?|hears?) of\b", "reports, learns of"),
    "of now": (r"(?<!states )\bof (?:now|before)\b(?!-)", "current, earlier"),
    "returns what": (
        r"^(?:Return|Yield|Record) (?:what|how|why|where|who)\b",
        "Return the number of …, the reason why …, the time at which …: a noun for the result",
    ),
}
"""A pattern and its replacement, by name of the habit."""

CEILINGS: dict[str, int] = {}
"""The most habits that an area may have; zero for an area that is not listed."""

GENERATED = {"benchmarks.md", "cli.md", "inferencepool.md", "metrics.md", "settings.md"}
"""Documents generated from docstrings, descriptions or a program's output."""
PACKAGES = ("core", "operator", "simulator", "cli", "controlplane", "router", "webui", "host", "serve", "sandbox", "cluster")


def prose_of_code(path: Path) -> Iterator[tuple[int, str]]:
    """Yield docstrings and messages; a message is a literal with a space."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value


def prose_of_page(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the text between tags, and literals in expressions."""
    text = path.read_text(encoding="utf-8")
    for found in re.finditer(r">([^<>{}]+)<|\"([A-Z][^\"<>{}=]* [^\"<>{}=]*)\"|^\s*([^<>{}|=\"]+)$", text, re.MULTILINE):
        words = next(group for group in found.groups() if group is not None)
        yield text.count("\n", 0, found.start()) + 1, words


def prose_of_document(path: Path) -> Iterator[tuple[int, str]]:
    """Yield paragraphs, without code."""
    text = re.sub(r"```.*?```", lambda code: "\n" * code.group().count("\n"), path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for found in re.finditer(r"(?:(?!\n\n|\n[-|#*]|\n\d+\. ).)+", text, re.DOTALL):
        yield text.count("\n", 0, found.start()) + 1, found.group()


def areas() -> dict[str, Iterator[tuple[str, int, str]]]:
    """Return an iterator over the prose of each area, with its file and line."""

    def of(paths: list[Path], read) -> Iterator[tuple[str, int, str]]:  # type: ignore[no-untyped-def]
        return ((path.relative_to(ROOT).as_posix(), line, words) for path in paths for line, words in read(path))

    found = {
        package: of([path for path in sorted((ROOT / package).rglob("*.py")) if "tests" not in path.parts], prose_of_code)
        for package in PACKAGES
    }
    documents = [path for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in GENERATED]
    found["docs"] = of([*documents, *sorted(ROOT.glob("*.md"))], prose_of_document)
    found["docs/decisions"] = of(sorted((ROOT / "docs/decisions").glob("*.md")), prose_of_document)
    found["pages"] = of(sorted((ROOT / "webui/fairlead_web/templates").rglob("*.html")), prose_of_page)
    return found


def habits(words: str) -> Iterator[str]:
    plain = " ".join(re.sub(r"`[^`]*`|--[a-z-]+|\]\([^)]*\)", "`code`", words).split())
    for name, (pattern, _) in HABITS.items():
        for _ in re.finditer(pattern, plain):
            yield name


AREAS = (*PACKAGES, "docs", "docs/decisions", "pages")
DANGLING = r"\bthose (?:of|that|who|with|which)\b"
"""A pattern for a pronoun whose noun the reader has to find."""


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, " ".join(re.sub(r"`[^`]*`", "`code`", node.value.value).split())


@pytest.mark.parametrize("area", AREAS)
def test_an_area_gains_no_habit(area: str) -> None:
    found = [(f"{file}:{line}", name) for file, line, words in areas()[area] for name in habits(words)]
    counted = Counter(name for _, name in found)
    listed = [f"{place}: {name}; write {HABITS[name][1]}" for place, name in found]
    assert len(found) <= CEILINGS.get(area, 0), f"{len(found)} ({dict(counted)}):\n" + "\n".join(listed)


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_repeat_the_noun(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {hit[0]!r}; name the thing again"
        for path in sorted((ROOT / package).rglob("*.py"))
        if "tests" not in path.parts
        for line, words in docstrings(path)
        if (hit := re.search(DANGLING, words))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("The router is told the policy.", "told"),
        ("Of a settled pool nothing is read.", "of X, Y"),
        ("Who asks for more gets the most.", "headless who"),
        ("A copy that nobody has is none, or is none.", "is none"),
        ("It goes by what came.", "goes by"),
        ("The month 'foo' is no number from 1 to 12.", "is no"),
        ("None from a router that does not tell.", "does not tell"),
        ("So many tokens of its answer have come.", "so many"),
        ("File to write; standard output without it.", "X without it"),
        ("Most rows of a page.", "Most X"),
        ("The pool's queue waits no more.", "no more"),
        ("Return how many tokens are cached.", "returns what"),
    ],
)
def test_a_habit_is_found(words: str, name: str) -> None:
    assert name in set(habits(words))


@pytest.mark.parametrize("words", ["Who may sign in", "Who is it?", "Of these, two serve.", "`told` is a field", "It is none of these."])
def test_plain_words_pass(words: str) -> None:
    assert list(habits(words)) == []

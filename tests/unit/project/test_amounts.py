"""Numbers with nouns: `1 session`, never `1 sessions`, on any page and in any sentence that people read."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.amounts import amount

ROOT = Path(__file__).parents[3]
READ = (
    "webui/fairlead_web",
    "controlplane/fairlead_api/plans",
    "core/fairlead/conditions",
    "core/fairlead/advice",
    "core/fairlead/routing/explanations",
)
"""The folders of most sentences that pages show."""
NOUNS = (
    *("anchors", "batches", "bindings", "candidates", "classes", "columns", "days", "decisions", "devices", "engines", "entries", "events"),
    *("figures", "homes", "hours", "instances", "keys", "lines", "metrics", "minutes", "models", "moves", "nodes", "others", "pods"),
    *("points", "policies", "pools", "prompts", "ranks", "requests", "restarts", "revisions", "roles", "routers", "rows", "schedules"),
    *("seconds", "sessions", "steps", "tasks", "times", "tokens", "tools", "turns", "values"),
)
NO_NUMBERS = ("role", "noun", "policy", "verb", "has", "'take'}", "name", "format(", "join(", "delta.words", "else 'its'", "else 'take'")
"""Words in expressions that are not whole numbers."""
PLURAL = rf"(?:</\w+>)?\s+(?:(?!by |of |in |to |and )[a-z-]+ )?(?:{'|'.join(NOUNS)})\b(?!/| \()"
IN_TEMPLATE = re.compile(r"(\bof |\bthe (?:newest|first|last) )?\{\{-?([^{}]*)-?\}\}" + PLURAL)
JOINED = re.compile(r"(?:\|count|\|length)\s*~\s*\"" + PLURAL)


def in_template(text: str) -> Iterator[str]:
    """Yield the expressions directly before a plural, except after *of*, where the noun is always a plural."""
    for found in IN_TEMPLATE.finditer(text):
        if not found[1] and "|amount" not in found[2] and not any(word in found[2] for word in NO_NUMBERS):
            yield " ".join(found[0].split())
    yield from (found[0] for found in JOINED.finditer(text))


def in_python(tree: ast.AST) -> Iterator[str]:
    """Yield the same in f-strings, without constants, which do not vary, and numbers with decimals, which take a
    plural.
    """
    for string in ast.walk(tree):
        if not isinstance(string, ast.JoinedStr):
            continue
        parts = string.values
        for before, value, after in zip([None, *parts], parts, [*parts[1:], None], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(after, ast.Constant):
                continue
            written = ast.unparse(value.value)
            spec = "" if value.format_spec is None else ast.unparse(value.format_spec)
            of = isinstance(before, ast.Constant) and re.search(r"\b(of|to|newest|first|last) $", str(before.value))
            number = not any(word in written for word in NO_NUMBERS) and not re.search(r"\.[1-9]|:g|'g|\bg'", spec)
            if of or not number or re.match(r"[\w.]*\b_?[A-Z][A-Z_]+\b", written):
                continue
            if re.match(PLURAL, str(after.value)):
                yield f"{{{written}}}{str(after.value)[:30]}"


@pytest.mark.parametrize("folder", READ)
def test_a_number_before_a_noun_is_written_with_the_form_that_it_needs(folder: str) -> None:
    found = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        found[path] = list(in_python(ast.parse(path.read_text())))
    for path in sorted((ROOT / folder).rglob("*.html")):
        found[path] = list(in_template(path.read_text()))
    assert [f"{path.relative_to(ROOT)}: {one}" for path, many in found.items() for one in many] == []


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (1, "session", "1 session"),
        (0, "entry", "0 entries"),
        (1200, "batch", "1,200 batches"),
        (2, "prefill instance", "2 prefill instances"),
        (0.8, "minute", "1 minute"),
        (1.4, "minute", "1 minute"),
        (0.3, "minute", "0 minutes"),
    ],
)
def test_an_amount_has_its_noun(number: float, noun: str, words: str) -> None:
    assert amount(number, noun) == words

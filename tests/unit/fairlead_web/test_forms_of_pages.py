"""The forms of every page: the field names in refusals, and the forms shown to people without rights."""

import re
from html import unescape
from html.parser import HTMLParser

from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.every_page import addresses, furnish
from fairlead_testing.running.web_client import Visitor, visitor

INSTANCE = INSTANCES[CHAT][1]
BAD = "no value!"
OF_THE_API = re.compile(r"\b[a-z]+(?:_[a-z]+)+:|\b[a-z]+[A-Z][A-Za-z]+:")
"""A pattern for the API's names, such as `requests_per_minute` and `maxReplicas`."""
LABELLED = ("/keys?edit=k-0", f"/pools/{CHAT}", f"/pools/{CHAT}/test")
"""Pages whose forms name fields differently from the API."""


class Forms(HTMLParser):
    """The forms of a page that write.

    They have their address, their values, the fields that a person types into, and whether they can be sent.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str], set[str]]] = []
        self.offered: set[str] = set()
        """The addresses of buttons that can be pressed."""
        self.inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.inside = given.get("method", "").lower() == "post"
            if self.inside:
                self.found.append((given.get("action", ""), {}, set()))
        elif tag == "button" and (self.inside or "form" in given) and "disabled" not in given:
            self.offered.add(given.get("formaction") or self.found[-1][0])
        elif self.inside and tag in {"input", "textarea"} and "name" in given and given["name"] != "csrf":
            self._field(tag, given)

    def _field(self, tag: str, given: dict[str, str]) -> None:
        _, values, typed = self.found[-1]
        if given.get("type") in {"checkbox", "radio"} and "checked" not in given:
            return
        values[given["name"]] = given.get("value", "")
        if given.get("type", "text") in {"text", "number"} or tag == "textarea":
            typed.add(given["name"])

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self.inside = False


def complaints(page: str) -> list[str]:
    """Return a page's messages about faults of a form, without tags."""
    found = re.findall(r'<(p|div)[^>]*role="alert"[^>]*>(.*?)</\1>', page, re.DOTALL)
    return [" ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split()) for _, text in found]


async def every_form(person: Visitor) -> list[tuple[str, Forms]]:
    furnish(person.fake, CHAT, INSTANCE)
    return [(path, Forms((await person.http.get(path)).text)) for path in addresses(CHAT, INSTANCE) if path != "/docs"]


async def test_a_refusal_names_a_field_as_its_form_does() -> None:
    tried, said = set(), list[str]()
    async with visitor("admin") as admin:
        furnish(admin.fake, CHAT, INSTANCE)
        for path in LABELLED:
            for action, values, typed in Forms((await admin.http.get(path)).text).found:
                for name in sorted(typed):
                    if (action, values.get("kind"), name) not in tried:
                        tried.add((action, values.get("kind"), name))
                        answer = await admin.submit(action, **{**values, name: BAD})
                        said += complaints(answer.text) if answer.status_code == 422 else []
    assert len(said) > 20
    assert [one for one in said if OF_THE_API.search(one)] == []


async def test_a_viewer_is_offered_no_button_whose_change_is_refused() -> None:
    refused, sent = [], set[str]()
    async with visitor("viewer") as viewer:
        for path, forms in await every_form(viewer):
            for action in forms.offered - sent - {"/logout"}:
                sent.add(action)
                values = next((values for found, values, _ in forms.found if found == action), {})
                if (await viewer.submit(action, **values)).status_code == 403:
                    refused.append(f"{path}: {action}")
    assert refused == []


async def test_a_change_that_a_viewer_sends_all_the_same_is_refused_with_the_role_that_it_needs() -> None:
    silent, sent = [], set[str]()
    async with visitor("admin") as admin:
        pages = await every_form(admin)
        admin.http.cookies = {name: value.replace("admin", "viewer") for name, value in admin.http.cookies.items()}
        for path, forms in pages:
            for action, values, _ in forms.found:
                if action in sent or not action or action == "/logout":
                    continue
                sent.add(action)
                answer = await admin.submit(action, **values)
                words = " ".join(re.sub(r"<[^>]+>", " ", answer.text).split())
                if answer.status_code == 403 and not re.search(r"role (operator|admin)|(operator|admin) role|may not", words):
                    silent.append(f"{path}: {action}: {words[:200]}")
    assert len(sent) > 20
    assert silent == []

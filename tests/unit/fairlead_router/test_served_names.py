"""Names that engines lack though their pool declares them, by their lists and by what they refuse."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.served_names import LONGEST_PAUSE_SECONDS, UNLISTED_SECONDS, ServedNames, refuses_name

DECLARED = ("m", "lora")


def test_an_engine_whose_list_lacks_a_name_lacks_it_until_the_list_has_it() -> None:
    names = ServedNames()
    names.listed("i0", ("m",), DECLARED, 10.0)
    assert (list(names.lacking("lora", 1e9)), list(names.lacking("m", 10.0))) == (["i0"], [])
    names.contradicted("i0", "lora", 20.0)
    assert list(names.lacking("lora", 1e9)) == ["i0"], "its own word stands"
    assert names.only_doubted("lora", 1e9) == []
    names.listed("i0", ("m", "lora"), DECLARED, 30.0)
    assert not names


def test_an_engine_that_lists_nothing_is_believed_to_serve_all() -> None:
    names = ServedNames()
    names.listed("i0", (), DECLARED, 10.0)
    assert not names


def test_a_refused_name_comes_back_by_a_list_read_after_that_or_after_a_while_without_one() -> None:
    names = ServedNames()
    names.contradicted("i0", "lora", 10.0)
    assert names.doubted == {"i0"}
    names.listed("i0", DECLARED, DECLARED, 9.9)
    assert list(names.lacking("lora", 10.0)) == ["i0"], "the list was asked for before"
    names.listed("i0", DECLARED, DECLARED, 10.5)
    assert not names and not names.doubted
    names.contradicted("i1", "lora", 10.0)
    assert list(names.lacking("lora", 10.0 + UNLISTED_SECONDS - 0.1)) == ["i1"]
    assert list(names.lacking("lora", 10.0 + UNLISTED_SECONDS)) == []
    assert not names


def test_an_engine_that_refuses_what_it_lists_is_asked_more_and_more_seldom() -> None:
    names, now, tries = ServedNames(), 0.0, 0
    while now < 3600.0:
        if not names.lacking("lora", now):
            tries += 1
            names.contradicted("i0", "lora", now)
        now += 1.0
        names.listed("i0", DECLARED, DECLARED, now)
    assert tries <= 20
    assert tries >= 3600.0 / LONGEST_PAUSE_SECONDS


def test_a_refusal_alone_takes_nothing_from_an_engine_but_lets_its_list_be_read() -> None:
    names = ServedNames()
    names.doubt("i0")
    assert (bool(names), names.doubted) == (False, {"i0"})
    names.unlisted("i0")
    assert (bool(names), names.doubted) == (False, set())
    names.contradicted("i0", "lora", 10.0)
    assert (list(names.lacking("lora", 10.0)), names.only_doubted("lora", 10.0), names.doubted) == (["i0"], ["i0"], {"i0"})


def test_engines_and_names_that_are_no_more_are_forgotten() -> None:
    names = ServedNames()
    for instance in ("i0", "i1"):
        for name in ("lora", "old"):
            names.contradicted(instance, name, 10.0)
    names.keep_only(["i1"], DECLARED)
    assert (list(names.lacking("lora", 10.0)), list(names.lacking("old", 10.0)), names.doubted) == (["i1"], [], {"i1"})


NAME = "org/lora"
MISSING = "The model `org/lora` does not exist."


def _error(**fields: object) -> bytes:
    return json.dumps({"error": {"type": "NotFoundError", "param": None, "code": 404, **fields}}).encode()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, _error(message=f"{MISSING} Valid aliases: org/base.", param="model")),
        (404, _error(message="no such thing", param="model")),
        (404, _error(message=MISSING)),
        (404, json.dumps({"object": "error", "message": MISSING, "type": "NotFoundError", "code": 404}).encode()),
        (404, json.dumps({"type": "error", "error": {"type": "NotFoundError", "message": MISSING}}).encode()),
        (404, _error(message="whatever", code="model_not_found")),
        (400, _error(message="model 'org/lora' not found", type="invalid_request_error", code=400)),
        (404, _error(message="model org/lora is not found", type="not_found_error")),
        (400, _error(message="The following requested LoRA adapters are not loaded: org/lora\nLoaded adapters: dict_keys([]).")),
        (400, _error(message="The following requested LoRA adapters are not loaded: {'a', 'org/lora'}\nLoaded adapters: {}.")),
        (404, json.dumps({"detail": "Model 'org/lora' not found"}).encode()),
        (404, json.dumps({"error": MISSING}).encode()),
    ],
)
def test_engines_say_in_these_ways_that_they_lack_a_name(status: int, body: bytes) -> None:
    assert refuses_name(status, body, NAME)
    assert not refuses_name(422, body, NAME)


QUOTED = st.sampled_from([NAME, MISSING, f"model {NAME} not found", json.dumps({"error": {"param": "model"}}), "model_not_found"])


@given(
    quoted=QUOTED,
    before=st.sampled_from(["Response with id '", "tool_choice: ", "The file ", "1 validation error: input_value='", "The model's tool "]),
    after=st.sampled_from(["' not found.", " does not exist", "", "\nThe model `org/lora` does not exist."]),
    param=st.sampled_from([None, "response_id", "messages", "tools"]),
    status=st.sampled_from([400, 404]),
    form=st.sampled_from(["error", "flat", "detail", "text", "echo"]),
)
def test_what_an_error_quotes_of_its_client_names_no_model(
    quoted: str, before: str, after: str, param: str | None, status: int, form: str
) -> None:
    error = {"message": f"{before}{quoted}{after}", "type": "NotFoundError", "param": param, "code": status}
    document = {
        "error": {"error": error},
        "flat": {"object": "error", **error},
        "detail": {"detail": error["message"]},
        "text": error["message"],
        "echo": {"error": {**error, "body": {"model": NAME, "message": MISSING}}, "model": NAME},
    }[form]
    body = str(document).encode() if form == "text" else json.dumps(document).encode()
    assert not refuses_name(status, body, NAME)


@pytest.mark.parametrize(
    "body", [b"there is no org/lora", b'{"detail": "Not Found"}', b"[]", b"", b"{", _error(message="The model `org/lora2` does not exist.")]
)
def test_a_404_may_be_about_something_else(body: bytes) -> None:
    assert not refuses_name(404, body, NAME)

"""Names that engines lack though their pool declares them, by their lists and by what they refuse."""

import pytest

from fairlead_router.served_names import LONGEST_PAUSE_SECONDS, UNLISTED_SECONDS, ServedNames, names_model

DECLARED = ("m", "lora")


def test_an_engine_whose_list_lacks_a_name_lacks_it_until_the_list_has_it() -> None:
    names = ServedNames()
    names.listed("i0", ("m",), DECLARED, 10.0)
    assert (list(names.lacking("lora", 1e9)), list(names.lacking("m", 10.0))) == (["i0"], [])
    names.refused("i0", "lora", 20.0)
    names.unsure("i0", "lora")
    assert list(names.lacking("lora", 1e9)) == ["i0"], "its own word stands"
    names.listed("i0", ("m", "lora"), DECLARED, 30.0)
    assert not names


def test_an_engine_that_lists_nothing_is_believed_to_serve_all() -> None:
    names = ServedNames()
    names.listed("i0", (), DECLARED, 10.0)
    assert not names


def test_a_refused_name_comes_back_by_a_list_read_after_that_or_after_a_while_without_one() -> None:
    names = ServedNames()
    names.refused("i0", "lora", 10.0)
    assert names.doubted == {"i0"}
    names.listed("i0", DECLARED, DECLARED, 9.9)
    assert list(names.lacking("lora", 10.0)) == ["i0"], "the list was asked for before"
    names.listed("i0", DECLARED, DECLARED, 10.5)
    assert not names and not names.doubted
    names.refused("i1", "lora", 10.0)
    assert list(names.lacking("lora", 10.0 + UNLISTED_SECONDS - 0.1)) == ["i1"]
    assert list(names.lacking("lora", 10.0 + UNLISTED_SECONDS)) == []
    assert not names


def test_an_engine_that_refuses_what_it_lists_is_asked_more_and_more_seldom() -> None:
    names, now, tries = ServedNames(), 0.0, 0
    while now < 3600.0:
        if not names.lacking("lora", now):
            tries += 1
            names.refused("i0", "lora", now)
        now += 1.0
        names.listed("i0", DECLARED, DECLARED, now)
    assert tries <= 20
    assert tries >= 3600.0 / LONGEST_PAUSE_SECONDS


def test_a_refusal_that_was_the_requests_fault_is_taken_back() -> None:
    names = ServedNames()
    names.refused("i0", "lora", 10.0)
    names.unsure("i0", "lora")
    assert not names
    assert names.doubted == {"i0"}, "its list is read all the same"


def test_engines_and_names_that_are_no_more_are_forgotten() -> None:
    names = ServedNames()
    for instance in ("i0", "i1"):
        for name in ("lora", "old"):
            names.refused(instance, name, 10.0)
    names.keep_only(["i1"], DECLARED)
    assert (list(names.lacking("lora", 10.0)), list(names.lacking("old", 10.0)), names.doubted) == (["i1"], [], {"i1"})


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b'{"error": {"message": "The model `org/lora` does not exist.", "type": "NotFoundError", "param": null, "code": 404}}', True),
        (b'{"error": {"message": "no such thing", "param": "model"}}', True),
        (b'{"object": "error", "message": "The model `org/lora` does not exist.", "code": 404}', True),
        (b'{"detail": "org\\/lora is unknown: org/lora"}', True),
        (b"there is no org/lora", True),
        (b'{"detail": "Not Found"}', False),
        (b'{"error": {"message": "Response with id resp_1 not found.", "param": null, "code": 404}}', False),
        (b'{"error": {"message": "bad", "param": "messages"}, "echo": {"model": "org/lora"}}', False),
        (b"[]", False),
        (b"", False),
    ],
)
def test_a_404_names_the_model_or_is_about_something_else(body: bytes, named: bool) -> None:
    assert names_model(body, "org/lora") is named

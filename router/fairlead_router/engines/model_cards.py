"""Reads the model cards of engines (`GET /v1/models`), and merges the cards of a model from all engines of a pool.

An engine may report anything. So its cards are limited in number and size, and no card makes a pool serve a model that
another pool declares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from fairlead.plausibility import LONGEST_NAME, PAGE_LEVELS
from fairlead_process.json_documents import nests_deeper

Card = Mapping[str, Any]
"""A model's card as its engine sent it."""

MOST_CARDS = 256
MOST_CARD_BYTES = 16 * 1024

_SMALLEST = ("max_model_len", "created")
"""Fields for which a merged card has the smallest value of all engines, because any of the engines may get a request.
"""

_OF_ONE_ANSWER = ("id", "created")
"""Fields of a permission whose values differ between responses of the same engine."""


def read_cards(answer: bytes) -> dict[str, Card]:
    """Return the cards in an engine's list of models, by model id. Skips cards that are unparsable or too large."""
    if nests_deeper(answer, PAGE_LEVELS):
        return {}
    try:
        listed = orjson.loads(answer)
    except orjson.JSONDecodeError:
        return {}
    data = listed.get("data") if isinstance(listed, dict) else None
    cards: dict[str, Card] = {}
    for card in data[:MOST_CARDS] if isinstance(data, list) else ():
        name = card.get("id") if isinstance(card, dict) else None
        if isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name not in cards and _is_small(card):
            cards[name] = card
    return cards


def _is_small(card: Card) -> bool:
    try:
        return len(orjson.dumps(card)) <= MOST_CARD_BYTES
    except orjson.JSONEncodeError:  # nested too deeply
        return False


def merged(cards: Sequence[Card]) -> dict[str, Any]:
    """Return one card for a model that several engines serve. It has the fields on which all engines agree, and the
    smallest context length.
    """
    agreed: dict[str, Any] = {}
    for field in dict.fromkeys(field for card in cards for field in card):
        values = [card[field] for card in cards if field in card]
        if field in _SMALLEST:
            numbers = [value for value in values if type(value) is int and 0 < value < 2**53]
            if numbers:
                agreed[field] = min(numbers)
        elif len(values) == len(cards) and all(_compared(field, value) == _compared(field, values[0]) for value in values):
            agreed[field] = values[0]
    return agreed


def _compared(field: str, value: Any) -> Any:
    if field != "permission" or not isinstance(value, list):
        return value
    return [{key: inner for key, inner in one.items() if key not in _OF_ONE_ANSWER} if isinstance(one, dict) else one for one in value]


def aliases_of(model: str, engines: Iterable[Mapping[str, Card]]) -> frozenset[str]:
    """Return the other names under which all these engines serve the model (`--served-model-name a b`): the ids of the
    cards with the same root as the model's card. Adapters, whose cards have a parent, are left out. An engine that does
    not list the model is ignored.
    """
    shared: frozenset[str] | None = None
    for cards in engines:
        root = cards[model].get("root") if model in cards else None
        if isinstance(root, str):
            names = frozenset(name for name, card in cards.items() if card.get("root") == root and card.get("parent") is None)
            shared = names if shared is None else shared & names
    return (shared or frozenset()) - {model}

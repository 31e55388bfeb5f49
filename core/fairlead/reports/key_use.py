"""The requests made with the gateway's keys, minute by minute."""

from dataclasses import dataclass

from fairlead.gateway_keys import KeyRefusal


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUse:
    """Requests of one key at this router in one minute, counted since the previous record of the same minute. The
    records of a minute add up.

    `minute` is the minute's beginning, in Unix seconds. `refusal` is the reason why the requests were refused because
    of their key; None for requests that reached a pool, with any outcome. Tokens are counted as for the key's limit:
    the prompt's tokens, and the answer's tokens in the minute in which the answer ended.
    """

    key: str
    minute: int
    refusal: KeyRefusal | None = None
    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0

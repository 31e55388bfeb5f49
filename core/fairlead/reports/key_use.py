"""The requests made with the gateway's keys, minute by minute."""

from dataclasses import dataclass

from fairlead.gateway_keys import KeyRefusal


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUse:
    """Requests of one key at this router in one minute, counted since the last record of the same minute: records add
    up.

    `minute` is when it began, in Unix seconds. `refusal` is why the requests were refused because of their key; None
    for those that went to a pool, however they ended. Tokens are counted as for the key's limit: the prompt's tokens,
    and the answer's in the minute in which it ended.
    """

    key: str
    minute: int
    refusal: KeyRefusal | None = None
    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0

"""The requests made with the gateway's keys, minute by minute."""

from dataclasses import dataclass

from fairlead.gateway_keys import KeyRefusal


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUse:
    """Requests of one key at this router in one minute, as many as came since the last record of that minute: records
    add up.

    `minute` is when it began, in Unix seconds. `refusal` is why the requests were refused because of their key; None
    for those that went to a pool, whatever became of them there. Tokens are those of the limit: the prompt's, and the
    answer's in the minute in which it ended.
    """

    key: str
    minute: int
    refusal: KeyRefusal | None = None
    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0

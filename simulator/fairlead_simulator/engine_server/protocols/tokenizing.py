"""`/tokenize` and `/detokenize`."""

from fairlead_simulator.engine_server import fields
from fairlead_simulator.engine_server.exchange import Exchange
from fairlead_simulator.engine_server.protocols.prompts import chat_prompt
from fairlead_simulator.engine_server.request_errors import missing, unsuitable
from fairlead_simulator.engine_server.served_instance import ServedInstance


async def serve_tokenize(instance: ServedInstance, exchange: Exchange) -> None:
    """The ids of a prompt or of a conversation, as many as `usage` would count."""
    document = await exchange.document()
    fields.check_model(document, instance.settings.model)
    if document.get("messages") is not None:
        prompt = chat_prompt(document["messages"], instance.settings.model)
    else:
        given = fields.text(document, "prompt")
        if given is None:
            raise missing("prompt")
        prompt = given.encode()
    ids = instance.tokenizer.ids(prompt)
    pieces = instance.tokenizer.pieces(prompt) if fields.flag(document, "return_token_strs") else None
    await exchange.answer_json({"count": len(ids), "max_model_len": instance.settings.context_tokens, "tokens": ids, "token_strs": pieces})


async def serve_detokenize(instance: ServedInstance, exchange: Exchange) -> None:
    """The text of ids."""
    document = await exchange.document()
    fields.check_model(document, instance.settings.model)
    ids = document.get("tokens")
    if not isinstance(ids, list):
        raise unsuitable("tokens", ids, "a valid list")
    tokenizer = instance.tokenizer
    await exchange.answer_json({"prompt": tokenizer.text(tokenizer.prompt(ids, "tokens"))})

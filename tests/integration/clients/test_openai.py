"""The official `openai` client, at an engine and at the gateway."""

import asyncio
import base64
import io
import struct
import wave
from collections.abc import AsyncIterator

import httpx
import openai
import pytest

from fairlead.routing.knowledge.prefill_speeds import ENOUGH_PREFILLS
from fairlead.tables import EarlyRejectionFacts
from fairlead_testing.running.client_doors import MODEL, Door, Doors
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import until

TURNS = "Tell me about prefix caches. " * 40


def client_of(door: Door, **options: object) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{door.url}/v1", api_key="any", **{"timeout": PATIENCE_SECONDS, "max_retries": 0} | options)  # type: ignore[arg-type]


@pytest.fixture
async def client(door: Door) -> AsyncIterator[openai.AsyncOpenAI]:
    async with client_of(door) as made:
        yield made


async def test_a_chat_is_answered_and_its_next_turn_finds_the_last_in_the_cache(client: openai.AsyncOpenAI) -> None:
    turn: list[dict[str, str]] = [{"role": "user", "content": TURNS}]
    first = await client.chat.completions.create(model=MODEL, messages=turn, max_tokens=64, user="ann")  # type: ignore[arg-type]
    choice = first.choices[0]
    assert (choice.finish_reason, choice.message.role) == ("length", "assistant")
    assert first.usage is not None
    assert first.usage.completion_tokens == 64
    turn += [{"role": "assistant", "content": choice.message.content or ""}, {"role": "user", "content": "Go on."}]
    second = await client.chat.completions.create(model=MODEL, messages=turn, max_tokens=4, user="ann")  # type: ignore[arg-type]
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    assert second.usage.prompt_tokens_details.cached_tokens == (290 + 64 - 1) // 16 * 16, "all full blocks of the first turn"


async def test_a_chat_stream_is_read_to_its_usage(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hello"}], max_tokens=30, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    words = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert len(words.split()) == 30
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == chunks[-1].usage.prompt_tokens + 30


async def test_completions_take_text_texts_and_token_ids(client: openai.AsyncOpenAI) -> None:
    one = await client.completions.create(model=MODEL, prompt="Hello there", max_tokens=3)
    both = await client.completions.create(model=MODEL, prompt=["Hello there", "Bye"], max_tokens=3)
    assert [choice.index for choice in both.choices] == [0, 1]
    assert both.choices[0].text == one.choices[0].text
    ids = [int.from_bytes(b"Hello there"[at : at + 4].ljust(4, b"\xff"), "little") for at in (0, 4, 8)]
    assert (await client.completions.create(model=MODEL, prompt=ids, max_tokens=3)).choices[0].text == one.choices[0].text
    streamed = [
        chunk.choices[0].text
        async for chunk in await client.completions.create(model=MODEL, prompt="Hello there", max_tokens=3, stream=True)
    ]
    assert "".join(streamed) == one.choices[0].text


async def test_a_response_is_created_retrieved_and_continued(client: openai.AsyncOpenAI) -> None:
    first = await client.responses.create(model=MODEL, input=TURNS, max_output_tokens=32, instructions="Be brief.", user="ann")
    assert (first.status, first.incomplete_details is not None) == ("incomplete", True)
    assert len(first.output_text.split()) == 32
    assert (await client.responses.retrieve(first.id)).output_text == first.output_text
    second = await client.responses.create(
        model=MODEL, input="Go on.", previous_response_id=first.id, max_output_tokens=4, instructions="Be brief.", user="ann"
    )
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens_details.cached_tokens >= (first.usage.total_tokens - 1) // 16 * 16


async def test_a_response_stream_builds_the_response_it_ends_with(client: openai.AsyncOpenAI) -> None:
    stream = await client.responses.create(model=MODEL, input="Hello", max_output_tokens=30, stream=True)
    events = [event async for event in stream]
    kinds = [event.type for event in events]
    assert kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert kinds[-4:] == ["response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == text
    assert (await client.responses.retrieve(last.response.id)).output_text == text
    async with client.responses.stream(model=MODEL, input="Hello", max_output_tokens=30) as helped:
        assert (await helped.get_final_response()).output_text == text


async def test_a_response_in_the_background_is_cancelled_once(client: openai.AsyncOpenAI, door: Door) -> None:
    begun = await client.responses.create(model=MODEL, input="Hello", max_output_tokens=8000, background=True)
    assert begun.status == "queued"
    assert (await client.responses.cancel(begun.id)).status == "cancelled"
    assert (await client.responses.retrieve(begun.id)).status == "cancelled"
    with pytest.raises(openai.BadRequestError, match="Cannot cancel"):
        await client.responses.cancel(begun.id)
    short = await client.responses.create(model=MODEL, input="Hello", max_output_tokens=3, background=True)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (ended := await client.responses.retrieve(short.id)).status == "queued":
            await asyncio.sleep(0.01)
    assert (ended.status, len(ended.output_text.split())) == ("incomplete", 3)


async def test_embeddings_come_as_the_client_asks_for_them(client: openai.AsyncOpenAI) -> None:
    asked = await client.embeddings.create(model=MODEL, input=["the same", "the same", "another thing"])
    raw = await client.embeddings.create(model=MODEL, input="the same", encoding_format="base64")
    vectors = [item.embedding for item in asked.data]
    assert len(vectors[0]) == 256
    assert vectors[0] == vectors[1] != vectors[2]
    encoded = raw.data[0].embedding
    assert list(struct.unpack("<256f", base64.b64decode(str(encoded)))) == vectors[0]
    assert asked.usage.prompt_tokens == asked.usage.total_tokens == 2 + 2 + 4


async def test_a_sound_is_transcribed_and_translated(client: openai.AsyncOpenAI) -> None:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(b"\0\1" * 16_000)
    heard = await client.audio.transcriptions.create(model=MODEL, file=("two-seconds.wav", file.getvalue()))
    assert len(heard.text.split()) == 6
    with pytest.warns(DeprecationWarning, match="deprecated"):  # by the client; engines go on serving it
        told = await client.audio.translations.create(model=MODEL, file=("two-seconds.wav", file.getvalue()))
    assert told.text == heard.text
    with pytest.raises(openai.BadRequestError, match="Invalid or unsupported audio file"):
        await client.audio.transcriptions.create(model=MODEL, file=("x.wav", b"no sound"))


async def test_models_are_listed(client: openai.AsyncOpenAI) -> None:
    assert MODEL in [model.id async for model in client.models.list()]


async def test_what_cannot_be_served_is_the_error_the_client_knows(client: openai.AsyncOpenAI) -> None:
    hello = [{"role": "user", "content": "Hello"}]
    with pytest.raises(openai.NotFoundError):
        await client.chat.completions.create(model="nobody", messages=hello)  # type: ignore[arg-type]
    with pytest.raises(openai.BadRequestError, match="maximum context length is 8192 tokens"):
        await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x" * 40_000}])
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(model=MODEL, messages=[])
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve("resp_lost")
    with pytest.raises(openai.APIStatusError) as caught:
        await client.post("/fine_tuning/nothing", cast_to=object)
    assert caught.value.status_code == 404


async def test_a_client_that_leaves_its_stream_leaves_nothing_running(client: openai.AsyncOpenAI, door: Door) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hello"}], max_tokens=8000, stream=True
    )
    await anext(aiter(stream))
    await stream.close()
    await until(lambda: sum(running_requests(engine.url) for engine in door.engines) == 0)
    if door.router is not None:
        router = door.router
        await until(lambda: router.busy() == 0)


async def test_a_client_that_is_out_of_patience_is_told_so(doors: Doors) -> None:
    slow = await doors.gateway("--decode-step-ms", "10000", engines=1)
    async with client_of(slow, timeout=0.5) as client:
        with pytest.raises(openai.APITimeoutError):
            await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hello"}], max_tokens=500)
    router = slow.router
    assert router is not None
    await until(lambda: router.busy() == 0)


async def test_a_pool_that_is_full_says_when_to_come_back(doors: Doors) -> None:
    """The engine is busy for seconds, so a further request cannot meet the target and is refused at once.

    The router knows the engine's speed after the first tokens of a few streams.
    """
    table = {"prefills_in_flight": 1, "early_rejection": EarlyRejectionFacts(mode="Load")}
    door = await doors.gateway("--prefill-tokens-per-second", "5", "--time-scale", "1", engines=1, table=table)
    engine = door.engines[0].url
    async with client_of(door) as client:
        for number in range(ENOUGH_PREFILLS):
            stream = await client.completions.create(model=MODEL, prompt=f"{number} and more", max_tokens=1, stream=True)
            assert [chunk async for chunk in stream]
        first = asyncio.ensure_future(client.completions.create(model=MODEL, prompt="x" * 40, max_tokens=1))
        await until(lambda: running_requests(engine) == 1)
        with pytest.raises(openai.RateLimitError) as caught:
            await client.completions.create(model=MODEL, prompt="y" * 400, max_tokens=1)
        assert int(caught.value.response.headers["retry-after"]) >= 1
        assert (await first).choices[0].finish_reason == "length"


async def test_a_client_without_the_gateways_key_is_not_let_in(doors: Doors) -> None:
    door = await doors.gateway(engines=1, gateway_keys=("right",))
    async with client_of(door) as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hello"}], max_tokens=2)
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()
        friend = stranger.with_options(api_key="right")
        answer = await friend.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hello"}], max_tokens=2)
        assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize(("engines", "retries"), [(1, "1"), (2, "0")])
async def test_a_client_sends_a_request_again_unless_it_failed_alike_on_two_instances(doors: Doors, engines: int, retries: str) -> None:
    """The router retries an engine's 5xx elsewhere; the remaining 502 is retried by the client.

    The router's header `x-should-retry: false` prevents that.
    """
    async with client_of(await doors.gateway(engines=engines), max_retries=1) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.with_options(max_retries=1).chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "Hello"}], max_tokens=2, extra_headers={"x-sim-fail": "error-500"}
            )
        assert caught.value.status_code == 502
        assert caught.value.request.headers["x-stainless-retry-count"] == retries


async def test_a_stream_whose_engine_dies_is_an_error_and_not_an_end(doors: Doors) -> None:
    async with client_of(await doors.gateway(engines=1)) as client:
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Hello"}],
            max_tokens=400,
            stream=True,
            extra_headers={"x-sim-fail": "die-mid-stream"},
        )
        words: list[str] = []
        with pytest.raises(openai.APIError, match="ended early"):
            words += [chunk.choices[0].delta.content or "" async for chunk in stream]


async def test_the_gateway_names_one_model_also_when_its_name_has_a_slash(doors: Doors) -> None:
    async with client_of(await doors.gateway(engines=1)) as client:
        assert (await client.models.retrieve(MODEL)).id == MODEL
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("no/body")


def running_requests(url: str) -> int:
    """Return the running requests by the engine's own metrics."""
    return int(httpx.get(f"{url}/load", timeout=PATIENCE_SECONDS).json()["server_load"])

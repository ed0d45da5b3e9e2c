"""OpenAI-compatible endpoint for agents: /v1/chat/completions, /v1/responses and /v1/models.

Every rollout has its own key; completions under a key are recorded in its conversation. In training
the configured temperature and a `top_p` of 1 apply, whatever the agent requests: a rollout must
come from the distribution that is trained. Validation uses the agent's values. A session with a
provider's model (remote.py) is forwarded instead. A key of an external script serves all its
rollouts, and each request has its own session.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from engine.policy.base import SampledToken, SampleRequest
from engine.protocol.problems import AtelierError, RolloutError
from engine.protocol.records.runs import CutBy
from engine.rollout.conversation import Prompt
from engine.rollout.gateway.completions import completion_body, logprobs_of
from engine.rollout.gateway.messages import first_invalid_field
from engine.rollout.gateway.requests import (
    MODEL_NAME,
    BadBody,
    ChatRequest,
    R,
    chunk,
    error_answer,
    parse_request,
    too_many_turns,
    with_system,
)
from engine.rollout.gateway.responses import (
    Message,
    ResponsesRequest,
    chat_request,
    events_of,
    input_messages,
    response_of,
)
from engine.rollout.gateway.sessions import (
    REMOTE_BYTES,
    ROLLOUT_LANE,
    SCRIPT_LANE,
    Choice,
    RemoteSession,
    RequestLimits,
    Session,
    SessionFactory,
    chunks,
    completion_of,
    request_bytes,
)
from engine.rollout.rendering.chat import read_completion
from engine.runtime.seeds import derive

STREAM = "text/event-stream"
LARGE_BYTES = 2**16
CONTEXT_FULL = "gateway.context_full"


class Gateway:
    """Gateway with the sessions by API key. One gateway serves all rollouts of an engine."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session | RemoteSession | SessionFactory] = {}
        self._large = asyncio.Lock()
        self._histories: dict[str, dict[str, list[Message]]] = {}
        """All messages up to the end of a response, by API key and response id."""

    def open(self, session: Session | RemoteSession) -> str:
        """Register the session of a rollout, and return a new API key for it."""
        key = f"sk-atelier-{uuid.uuid4().hex}"
        self._sessions[key] = session
        return key

    def add_script(self, key: str, sessions: SessionFactory) -> None:
        """Accept requests of an external script under its API `key`; `sessions` makes a session for
        each."""
        self._sessions[key] = sessions

    def close(self, key: str) -> None:
        del self._sessions[key]
        self._histories.pop(key, None)

    def knows(self, key: str) -> bool:
        return key in self._sessions

    def lane(self, key: str) -> RequestLimits:
        """Limits on the number of concurrent requests under an API key: those of a rollout, or
        those of a script, also for an unknown key."""
        found = self._sessions.get(key)
        return ROLLOUT_LANE if isinstance(found, Session | RemoteSession) else SCRIPT_LANE

    def most_bytes(self, authorization: bytes) -> int:
        """Size limit in bytes of a request with this Authorization header, large enough for every
        prompt that fits the model."""
        found = self._sessions.get(authorization.decode("latin-1").removeprefix("Bearer "))
        if found is None or isinstance(found, RemoteSession):
            return REMOTE_BYTES
        return request_bytes(found.max_context)

    def session_of(self, request: Request) -> Session | RemoteSession | SessionFactory:
        """Session of the rollout whose API key a request has, or the session factory of a script.
        The request must be authenticated."""
        return self._sessions[_key(request)]

    def routes(self) -> list[Route]:
        return [
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
            Route("/v1/responses", self._respond, methods=["POST"]),
            Route("/v1/models", self._models, methods=["GET"]),
        ]

    async def _models(self, request: Request) -> Response:
        session = self.session_of(request)
        name = MODEL_NAME if isinstance(session, RemoteSession) else session.name
        return JSONResponse({"object": "list", "data": [{"id": name, "object": "model"}]})

    async def _complete(self, request: Request) -> Response:
        found = self.session_of(request)

        async def answer() -> Response:
            chat = await self._parsed(ChatRequest, request)
            session, chat = await _entered(found, chat)
            if chat.stream and isinstance(session, Session):
                events = _stream(session, chat, await _admit(session, chat))
                return StreamingResponse(events, media_type=STREAM)
            if chat.stream and isinstance(session, RemoteSession):
                events = chunks(await session.answer(chat))
                return StreamingResponse(events, media_type=STREAM)
            return JSONResponse(await _completion(session, chat))

        return await self._answered(found, answer)

    async def _respond(self, request: Request) -> Response:
        """Handle a request of the Responses API; a stream is sent item by item."""
        session, histories = self.session_of(request), self._histories.setdefault(_key(request), {})

        async def answer() -> Response:
            if not isinstance(session, Session | RemoteSession):
                raise RolloutError.of(
                    "gateway.not_handed_in",
                    "Responses of the Responses API cannot be used for training.",
                    "Use chat completions.",
                )
            parsed = await self._parsed(ResponsesRequest, request)
            before = _before(histories, parsed.previous_response_id)
            chat = with_system(chat_request(parsed, before), session.system)
            completion = await _completion(session, chat)
            response = response_of(parsed, completion)
            message = completion["choices"][0]["message"]
            histories[response["id"]] = [*before, *input_messages(parsed), message]
            if parsed.stream:
                return StreamingResponse(events_of(response), media_type=STREAM)
            return JSONResponse(response)

        return await self._answered(session, answer)

    async def _parsed(self, model: type[R], request: Request) -> R:
        """Parse the body of a request. Long ones are parsed one at a time, off the event loop."""
        body = await request.body()
        if len(body) <= LARGE_BYTES:
            return parse_request(model, body)
        async with self._large:
            return await asyncio.to_thread(parse_request, model, body)

    async def _answered(
        self,
        session: Session | RemoteSession | SessionFactory,
        answer: Callable[[], Awaitable[Response]],
    ) -> Response:
        """Convert errors into OpenAI's form; an error that is not the agent's ends the rollout."""
        try:
            return await answer()
        except ValidationError as error:
            return error_answer(400, "gateway.bad_request", first_invalid_field(error))
        except BadBody as error:
            return error_answer(400, "gateway.bad_request", f"body: {error}")
        except RolloutError as error:
            return error_answer(400, error.problem.code, str(error))
        except AtelierError as error:
            if isinstance(session, Session | RemoteSession):
                session.failure = session.failure or error
            return error_answer(500, error.problem.code, str(error))


def _key(request: Request) -> str:
    return request.headers["authorization"].removeprefix("Bearer ")


def _before(histories: dict[str, list[Message]], previous: str | None) -> list[Message]:
    if previous is None:
        return []
    if previous not in histories:
        raise RolloutError.of(
            "gateway.no_such_response",
            f"There is no response {previous} in this rollout.",
            "Send the whole conversation as input, or a previous_response_id of this rollout.",
        )
    return histories[previous]


async def _entered(
    found: Session | RemoteSession | SessionFactory, request: ChatRequest
) -> tuple[Session | RemoteSession, ChatRequest]:
    """Session of a request, and the request with the session's settings applied."""
    session = found if isinstance(found, Session | RemoteSession) else await found.enter(request)
    request = with_system(request, session.system)
    if isinstance(session, Session) and session.tells_logprobs:
        request = request.model_copy(update={"logprobs": True})
    return session, request


async def _completion(session: Session | RemoteSession, request: ChatRequest) -> dict[str, Any]:
    if isinstance(session, RemoteSession):
        return completion_of(await session.answer(request))
    prompt = await _admit(session, request)
    choices = await asyncio.gather(
        *(_sample(session, request, prompt, index) for index in range(request.n))
    )
    return completion_body(session.name, request, prompt, choices)


async def _admit(session: Session, request: ChatRequest) -> Prompt:
    session.calls += 1
    call = session.calls
    if call > session.max_turns:
        raise too_many_turns(session.max_turns)
    tools = [] if request.tool_choice == "none" else request.tools or []
    session.conversation.tools = tools or session.conversation.tools
    most = session.max_context
    try:
        prompt = await session.conversation.prompt(request.messages, tools, most, call)
        if len(prompt.tokens) >= most:
            raise _too_long(len(prompt.tokens), most)
    except RolloutError as error:
        if error.problem.code == CONTEXT_FULL:
            session.conversation.truncated, session.conversation.cut_by = True, "context"
        raise
    return prompt


def _too_long(tokens: int, most: int) -> RolloutError:
    return RolloutError.of(
        CONTEXT_FULL,
        f"The prompt has {tokens} tokens; model.max_context is {most}.",
        "Raise model.max_context or shorten what the agent sends.",
    )


async def _sample(session: Session, request: ChatRequest, prompt: Prompt, index: int) -> Choice:
    sampled: list[SampledToken] = []
    finish = "length"
    async for tokens, reason in _tokens(session, request, prompt, index):
        sampled += tokens
        finish = reason
    return _close(session, request, prompt, index, sampled, finish)


async def _tokens(
    session: Session, request: ChatRequest, prompt: Prompt, index: int
) -> AsyncIterator[tuple[list[SampledToken], str]]:
    """Yield sampled tokens and the finish reason that applies if generation ends there."""
    sample_request = _request(session, request, prompt, index)
    sampled: list[SampledToken] = []
    source = session.policy.sample(sample_request)
    try:
        async for tokens in source:
            sampled += tokens
            ended = session.chat.is_special(sampled[-1].token) and len(sampled) > 0
            cut = bool(request.stops) and any(
                stop in session.chat.decode([t.token for t in sampled]) for stop in request.stops
            )
            yield tokens, "stop" if ended or cut else "length"
            if cut:
                return
    finally:
        await source.aclose()  # type: ignore[attr-defined]


def _limit(session: Session, request: ChatRequest, prompt: Prompt) -> tuple[int, CutBy]:
    """Lowest token limit of a completion, and which limit it is (`max_tokens`, `context` or
    `agent`, in this order if equal)."""
    limits: list[tuple[int, CutBy]] = [
        (session.max_tokens, "max_tokens"),
        (session.max_context - len(prompt.tokens), "context"),
    ]
    if wanted := request.max_completion_tokens or request.max_tokens:
        limits.append((wanted, "agent"))
    return min(limits, key=lambda limit: limit[0])


def _request(session: Session, request: ChatRequest, prompt: Prompt, index: int) -> SampleRequest:
    free, seed = session.free, session.seed_of(prompt.call, index)
    if free and request.seed is not None:
        seed = derive(request.seed, "sample", index)
    return SampleRequest(
        tokens=prompt.tokens,
        max_tokens=_limit(session, request, prompt)[0],
        temperature=request.temperature
        if free and request.temperature is not None
        else session.temperature,
        top_p=request.top_p if free and request.top_p is not None else 1.0,
        seed=seed,
        top_logprobs=(request.top_logprobs or 0) if request.logprobs else 0,
    )


def _close(
    session: Session,
    request: ChatRequest,
    prompt: Prompt,
    index: int,
    sampled: list[SampledToken],
    finish: str,
) -> Choice:
    chat, tools = session.chat, bool(request.tools) and request.tool_choice != "none"
    ids = [token.token for token in sampled]
    spoken = ids[:-1] if ids and chat.is_special(ids[-1]) else ids
    raw = chat.decode(spoken)
    text = chat.decode([token for token in spoken if not chat.is_special(token)])
    cuts = [text.index(stop) for stop in request.stops if stop in text]
    completion = read_completion(text[: min(cuts)] if cuts else text, tools)
    if finish == "length":
        session.conversation.truncated = True
        session.conversation.cut_by = _limit(session, request, prompt)[1]
    message = session.conversation.record(prompt, request.messages, sampled, raw, completion)
    if completion.tool_calls:
        finish = "tool_calls"
    return Choice(index, sampled, raw, finish, message, session.conversation.turns[-1].id)


async def _stream(session: Session, request: ChatRequest, prompt: Prompt) -> AsyncIterator[str]:
    """Stream server-sent chunks. Tool calls are sent complete in the last chunk, since partial
    calls are useless."""
    say = partial(chunk, session.name, f"chatcmpl-{uuid.uuid4().hex}")
    tools = bool(request.tools)
    try:
        for index in range(request.n):
            yield say(index, {"role": "assistant", "content": ""})
            sampled: list[SampledToken] = []
            sent, finish = "", "length"
            async for tokens, reason in _tokens(session, request, prompt, index):
                sampled += tokens
                finish = reason
                ids = [t.token for t in sampled if not session.chat.is_special(t.token)]
                text = _settled(session.chat.decode(ids), request.stops)
                if not tools and len(text) > len(sent):
                    yield say(index, {"content": text[len(sent) :]})
                    sent = text
            choice = _close(session, request, prompt, index, sampled, finish)
            delta = {k: v for k, v in choice.message.items() if k != "role"}
            delta["content"] = delta["content"][len(sent) :]
            for place, call in enumerate(delta.get("tool_calls", [])):
                call["index"] = place
            logprobs = logprobs_of(choice) if session.tells_logprobs else None
            yield say(index, delta, choice.finish, logprobs)
    except AtelierError as error:
        session.failure = session.failure or error
        body = {"error": {"message": str(error), "type": error.problem.code}}
        yield f"data: {json.dumps(body)}\n\n"
    yield "data: [DONE]\n\n"


def _settled(text: str, stops: list[str]) -> str:
    """Part of the text that can be streamed: without incomplete characters or a possible beginning
    of a stop string."""
    text = text.rstrip("\ufffd")
    cuts = [text.index(stop) for stop in stops if stop in text]
    if cuts:
        return text[: min(cuts)]
    held = max((len(stop) - 1 for stop in stops), default=0)
    return text[: len(text) - held] if held else text

"""Endpoint for agents in three dialects: OpenAI's chat completions and Responses, Anthropic's
Messages.

Every rollout has its own key; completions under a key are recorded in its conversation. A session
with a provider's model (remote.py) is forwarded instead. A key of an external script serves all its
rollouts, and each request has its own session.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from engine.protocol.problems import AtelierError, RolloutError
from engine.rollout.gateway import anthropic
from engine.rollout.gateway.completions import DONE, Tokens, completion_body, completion_chunks
from engine.rollout.gateway.fields import Dialect
from engine.rollout.gateway.images import without_data
from engine.rollout.gateway.messages import first_invalid_field
from engine.rollout.gateway.requests import (
    MODEL_NAME,
    BadBody,
    ChatRequest,
    R,
    error_answer,
    parse_request,
    with_system,
)
from engine.rollout.gateway.responses import (
    Message,
    ResponsesRequest,
    ResponseStream,
    chat_request,
    input_messages,
    response_of,
)
from engine.rollout.gateway.sampling import begin, complete, last, offered_tools
from engine.rollout.gateway.sessions import (
    REMOTE_BYTES,
    ROLLOUT_LANE,
    SCRIPT_LANE,
    RemoteSession,
    RequestLimits,
    Session,
    SessionFactory,
    request_bytes,
)

STREAM = "text/event-stream"
LARGE_BYTES = 2**16
COUNTED_CONTEXTS = 16
"""Longest prompt whose tokens are counted, in contexts of the model."""
Found = Session | RemoteSession | SessionFactory


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

    def most_bytes(self, key: str) -> int:
        """Size limit in bytes of a request under an API key, large enough for every prompt that
        fits the model."""
        found = self._sessions.get(key)
        if found is None or isinstance(found, RemoteSession):
            return REMOTE_BYTES
        return request_bytes(found.max_context, found.reads_images)

    def session_of(self, request: Request) -> Found:
        """Session of the rollout whose API key a request has, or the session factory of a script.
        The request must be authenticated."""
        return self._sessions[api_key(request.headers)]

    def routes(self) -> list[Route]:
        return [
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
            Route("/v1/responses", self._respond, methods=["POST"]),
            Route("/v1/messages", self._message, methods=["POST"]),
            Route("/v1/messages/count_tokens", self._count_tokens, methods=["POST"]),
            Route("/v1/models", self._models, methods=["GET"]),
        ]

    async def _models(self, request: Request) -> Response:
        session = self.session_of(request)
        name = MODEL_NAME if isinstance(session, RemoteSession) else session.name
        return JSONResponse({"object": "list", "data": [{"id": name, "object": "model"}]})

    async def _complete(self, request: Request) -> Response:
        found = self.session_of(request)

        async def answer() -> Response:
            chat = await self._parsed(ChatRequest, request, "chat")
            session, chat = await _entered(found, chat)
            call = await begin(session, chat)
            tokens = _tokens(session, bool(chat.return_tokens_as_token_ids))
            if not chat.stream:
                choices = await complete(call, chat.n)
                return JSONResponse(completion_body(chat, call, choices, tokens))
            events = completion_chunks(chat, call, tokens)
            return StreamingResponse(_guarded(session, events, _chat_error), media_type=STREAM)

        return await self._answered(found, answer, error_answer)

    async def _respond(self, request: Request) -> Response:
        """Handle a request of the Responses API."""
        key = api_key(request.headers)
        session, histories = self.session_of(request), self._histories.setdefault(key, {})

        async def answer() -> Response:
            owned = _owned(session, "Responses of the Responses API")
            parsed = await self._parsed(ResponsesRequest, request, "responses")
            before = _before(histories, parsed.previous_response_id)
            new = await without_data(owned, input_messages(parsed))
            chat = with_system(chat_request(parsed, [*before, *new]), owned.system)
            call, tokens = await begin(owned, chat), _tokens(owned, as_ids=False)

            def remember(response: dict[str, Any], message: Message) -> None:
                histories[response["id"]] = [*before, *new, message]

            if not parsed.stream:
                choice = await last(call.arrivals(0))
                response = response_of(parsed, call, choice, tokens)
                remember(response, choice.message)
                return JSONResponse(response)
            stream = ResponseStream(parsed, call, tokens)

            async def events() -> AsyncIterator[str]:
                async for event in stream.events():
                    if stream.choice is not None:
                        remember(stream.response, stream.choice.message)
                    yield event

            return StreamingResponse(_guarded(owned, events(), _responses_error), media_type=STREAM)

        return await self._answered(session, answer, error_answer)

    async def _message(self, request: Request) -> Response:
        """Handle a request of Anthropic's Messages API."""
        session = self.session_of(request)

        async def answer() -> Response:
            owned = _owned(session, "Answers of the Messages API")
            parsed = await self._parsed(anthropic.MessagesRequest, request, "messages")
            anthropic.refuse_prefill(parsed)
            chat = await _entered_with(owned, anthropic.chat_request(parsed, await _switch(owned)))
            call = await begin(owned, chat)
            if not parsed.stream:
                choice = await last(call.arrivals(0))
                return JSONResponse(anthropic.message_body(call, choice))
            events = anthropic.message_events(call)
            return StreamingResponse(
                _guarded(owned, events, anthropic.error_event, end=""), media_type=STREAM
            )

        return await self._answered(session, answer, _anthropic_error)

    async def _count_tokens(self, request: Request) -> Response:
        """Count the tokens of the prompt of a Messages request, exactly."""
        session = self.session_of(request)

        async def answer() -> Response:
            owned = _owned(session, "Token counts")
            if not isinstance(owned, Session):
                raise RolloutError.of(
                    "gateway.no_count", "The provider of this model does not count tokens ahead."
                )
            parsed = await self._parsed(anthropic.MessagesRequest, request, "messages")
            chat = await _entered_with(owned, anthropic.chat_request(parsed, await _switch(owned)))
            values = chat.variables(await owned.chat.described())
            most = owned.max_context * COUNTED_CONTEXTS
            prompt = await owned.recording.prompt(
                chat.messages, offered_tools(chat), most, variables=values
            )
            return JSONResponse({"input_tokens": len(prompt.tokens)})

        return await self._answered(session, answer, _anthropic_error)

    async def _parsed(self, model: type[R], request: Request, dialect: Dialect) -> R:
        """Parse the body of a request. Long ones are parsed one at a time, off the event loop."""
        body = await request.body()
        if len(body) <= LARGE_BYTES:
            return parse_request(model, body, dialect)
        async with self._large:
            return await asyncio.to_thread(parse_request, model, body, dialect)

    async def _answered(
        self,
        session: Found,
        answer: Callable[[], Awaitable[Response]],
        error_body: Callable[[int, str, str], Response],
    ) -> Response:
        """Convert errors into the API's form (`error_body` of status, code and sentence); an error
        that is not the agent's ends the rollout."""
        try:
            return await answer()
        except ValidationError as error:
            return error_body(400, "gateway.bad_request", first_invalid_field(error))
        except BadBody as error:
            return error_body(400, "gateway.bad_request", f"body: {error}")
        except RolloutError as error:
            return error_body(400, error.problem.code, str(error))
        except AtelierError as error:
            if isinstance(session, Session | RemoteSession):
                session.failure = session.failure or error
            return error_body(500, error.problem.code, str(error))


def api_key(headers: Any) -> str:
    """API key of a request, in the header of OpenAI's clients or of Anthropic's."""
    bearer: str = headers.get("authorization", "")
    return bearer.removeprefix("Bearer ") if bearer else str(headers.get("x-api-key", ""))


def _owned(found: Found, what: str) -> Session | RemoteSession:
    if isinstance(found, Session | RemoteSession):
        return found
    raise RolloutError.of(
        "gateway.not_handed_in", f"{what} cannot be used for training.", "Use chat completions."
    )


async def _switch(session: Session | RemoteSession) -> str:
    """Name of the template's variable that turns the reasoning on and off; empty without one."""
    return (await session.chat.described()).switch if isinstance(session, Session) else ""


def _tokens(session: Session | RemoteSession, as_ids: bool) -> Tokens:
    if isinstance(session, RemoteSession):
        return Tokens(None, as_ids)
    return Tokens(session.chat, as_ids or session.tells_logprobs)


async def _guarded(
    session: Session | RemoteSession,
    events: AsyncIterator[str],
    error_event: Callable[[str], str],
    end: str = DONE,
) -> AsyncIterator[str]:
    """Yield the events of a stream; an error in the middle becomes an event, and ends the rollout
    unless it is the agent's."""
    try:
        async for event in events:
            yield event
    except AtelierError as error:
        if not isinstance(error, RolloutError):
            session.failure = session.failure or error
        yield error_event(str(error))
    if end:
        yield end


def _chat_error(message: str) -> str:
    return f"data: {json.dumps({'error': {'message': message, 'type': 'gateway.failed'}})}\n\n"


def _responses_error(message: str) -> str:
    body = {"type": "error", "code": "gateway.failed", "message": message, "param": None}
    return f"event: error\ndata: {json.dumps(body)}\n\n"


def _anthropic_error(status: int, _: str, message: str) -> Response:
    return anthropic.error_body(status, message)


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
    found: Found, request: ChatRequest
) -> tuple[Session | RemoteSession, ChatRequest]:
    """Session of a request, and the request with the session's settings applied."""
    session = found if isinstance(found, Session | RemoteSession) else await found.enter(request)
    request = await _entered_with(session, request)
    if isinstance(session, Session) and session.tells_logprobs:
        request = request.model_copy(update={"logprobs": True})
    return session, request


async def _entered_with(session: Session | RemoteSession, request: ChatRequest) -> ChatRequest:
    """Request with the session's system message, and the ids of its images in place of their
    data."""
    messages = await without_data(session, request.messages)
    return with_system(request.model_copy(update={"messages": messages}), session.system)

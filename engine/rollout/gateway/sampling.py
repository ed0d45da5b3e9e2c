"""A model call of a rollout: admit the request, sample, record, in any API's form.

In training the configured temperature and a `top_p` of 1 apply, whatever the agent requests: a
rollout must come from the distribution that is trained. Validation uses the agent's values. A
`seed` makes equal requests of one rollout sample the same tokens; rollouts still differ.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol

from engine.policy.base import SampledToken, SampleRequest
from engine.protocol.problems import RolloutError
from engine.protocol.records.runs import CutBy
from engine.rollout.gateway.answers import AnswerStream, Decoder, Delta
from engine.rollout.gateway.budget import (
    ThinkingBudget,
    budget_of,
    request_behind,
    structure_behind,
)
from engine.rollout.gateway.requests import MODEL_NAME, ChatRequest, too_many_turns
from engine.rollout.gateway.sessions import Choice, ProviderAnswer, RemoteSession, Session
from engine.rollout.gateway.structures import structure_of
from engine.rollout.recording import Part, Prompt
from engine.rollout.rendering.chat import reasoning_of
from engine.rollout.rendering.probes import Findings
from engine.rollout.rendering.syntaxes import THINK, Reply
from engine.runtime.seeds import derive

CONTEXT_FULL = "gateway.context_full"


class Arriving(NamedTuple):
    """Part of an answer: new pieces of it, or at the end the whole."""

    delta: Delta
    sampled: list[SampledToken]
    choice: Choice | None = None


class ModelCall(Protocol):
    """Model call of a rollout, which is ready to be answered."""

    name: str
    """Name of the model in the answer."""
    prompt_tokens: int
    """0 if unknown before the answer."""

    def arrivals(self, index: int) -> AsyncIterator[Arriving]:
        """Sample choice `index`; yields its pieces as they arrive, then the whole choice."""
        ...


async def begin(session: Session | RemoteSession, request: ChatRequest) -> ModelCall:
    """Count a model call and prepare its answer. Raises RolloutError for a request that cannot be
    answered."""
    if isinstance(session, RemoteSession):
        return ProviderCall(await session.answer(request))
    return await _admit(session, request)


async def complete(call: ModelCall, count: int) -> list[Choice]:
    """Sample `count` choices, all at once."""
    return await asyncio.gather(*(last(call.arrivals(index)) for index in range(count)))


async def together(call: ModelCall, count: int) -> AsyncIterator[tuple[int, Arriving]]:
    """Sample `count` choices, all at once; yields what arrives with the index of its choice. Raises
    the first error of a choice."""
    queue: asyncio.Queue[tuple[int, Arriving] | Exception | None] = asyncio.Queue()

    async def sample(index: int) -> None:
        try:
            async for arriving in call.arrivals(index):
                queue.put_nowait((index, arriving))
            queue.put_nowait(None)
        except Exception as error:  # noqa: BLE001 - raised by the reader
            queue.put_nowait(error)

    tasks = [asyncio.create_task(sample(index)) for index in range(count)]
    try:
        while count:
            found = await queue.get()
            if isinstance(found, Exception):
                raise found
            if found is None:
                count -= 1
            else:
                yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def last(arrivals: AsyncIterator[Arriving]) -> Choice:
    """The choice at the end of its arrivals."""
    found = [arriving.choice async for arriving in arrivals if arriving.choice is not None]
    return found[-1]


def offered_tools(request: ChatRequest) -> list[dict[str, Any]]:
    """Tools that a request offers the model."""
    return [] if request.tool_choice == "none" else request.tools or []


class ProviderCall:
    """Model call that a provider answers; its answer arrives whole."""

    prompt_tokens = 0

    def __init__(self, answers: list[ProviderAnswer]) -> None:
        self.name = MODEL_NAME
        self._answers = answers

    async def arrivals(self, index: int) -> AsyncIterator[Arriving]:
        answer = self._answers[index]
        message = answer.message
        choice = Choice(
            index=index,
            sampled=[],
            finish=answer.finish,
            message=message,
            prompt_tokens=answer.usage.prompt_tokens,
            completion_tokens=answer.usage.completion_tokens,
        )
        yield Arriving(Delta(reasoning_of(message), message.get("content") or ""), [], choice)


async def _admit(session: Session, request: ChatRequest) -> "PolicyCall":
    session.calls += 1
    call = session.calls
    if call > session.max_turns:
        raise too_many_turns(session.max_turns)
    tools, most = offered_tools(request), session.max_context
    findings = await session.chat.described()
    if tools and not findings.syntax:
        raise RolloutError.of(
            "gateway.no_tool_calls",
            "tools: Atelier cannot read tool calls in the format of this model's chat template.",
            "Set model.tool_syntax if you know the format, or describe the tools in a message.",
            where="tools",
        )
    try:
        prompt = await session.recording.prompt(
            request.messages, tools, most, call, request.variables(findings)
        )
        if len(prompt.tokens) >= most:
            raise _too_long(len(prompt.tokens), most)
    except RolloutError as error:
        if error.problem.code == CONTEXT_FULL:
            session.recording.truncated, session.recording.cut_by = True, "context"
        raise
    grammar = structure_of(request, findings, session.chat.special_tokens, prompt.text)
    wanted = request.max_completion_tokens or request.max_tokens
    session.capped_calls += wanted is not None and wanted > session.max_tokens
    return PolicyCall(session, request, prompt, findings, grammar)


class PolicyCall:
    """Model call that the policy answers."""

    def __init__(
        self,
        session: Session,
        request: ChatRequest,
        prompt: Prompt,
        findings: Findings,
        grammar: str | None,
    ) -> None:
        """`grammar`: what the answer must look like, as a structural tag."""
        self.name = session.name
        self.prompt_tokens = len(prompt.tokens)
        self._session, self._request, self._prompt = session, request, prompt
        self._findings, self._grammar = findings, grammar

    async def arrivals(self, index: int) -> AsyncIterator[Arriving]:
        request, chat = self._request, self._session.chat
        opened = self._prompt.text.rstrip().endswith(THINK)
        tools = bool(offered_tools(request))
        stream = AnswerStream(self._findings, opened, tools, request.stops)
        decoder, parts = Decoder(chat), [Part([], self._grammar)]
        wanted, closing = self._sample_request(index), self._findings.closing
        most = budget_of(chat.thinking_budget, request) if closing else None
        budget = ThinkingBudget(most, self._findings, opened) if most is not None else None
        async with aclosing(self._sample(wanted, parts[0], stream, decoder, budget)) as source:
            async for arriving in source:
                yield arriving
        if budget is not None and budget.closes:
            forced = [stream.force(*decoder.add(token)) for token in closing]
            yield Arriving(_joined(forced), [])
            grammar = structure_behind(request, self._findings, chat) if self._grammar else None
            behind = request_behind(wanted, parts[0], closing, grammar)
            parts.append(Part([], grammar, closing))
            async with aclosing(self._sample(behind, parts[1], stream, decoder)) as source:
                async for arriving in source:
                    yield arriving
        choice, reply = await self._closed(index, parts, stream.stopped)
        yield Arriving(stream.finish(reply), [], choice)

    async def _sample(
        self,
        wanted: SampleRequest,
        part: Part,
        stream: AnswerStream,
        decoder: Decoder,
        budget: ThinkingBudget | None = None,
    ) -> AsyncGenerator[Arriving]:
        """Sample the tokens of a part of an answer, until a stop string, or the end of the thinking
        budget while the reasoning is open; yields what arrives."""
        chat, sampled = self._session.chat, part.sampled
        source = self._session.policy.sample(wanted)
        try:
            async for tokens in source:
                new, before = list[Delta](), len(sampled)
                for token in tokens:
                    sampled.append(token)
                    if token.token in chat.stops:
                        continue
                    text, special = decoder.add(token.token)
                    new.append(stream.add(text, special))
                    if stream.stopped:
                        break
                    if budget is not None and budget.is_spent(text):
                        budget.closes = await self._must_close(wanted, part)
                        if budget.closes:
                            break
                yield Arriving(_joined(new), sampled[before:])
                if stream.stopped or (budget is not None and budget.closes):
                    break
        finally:
            await source.aclose()  # type: ignore[attr-defined]

    async def _must_close(self, wanted: SampleRequest, part: Part) -> bool:
        """Whether the reasoning is open after this part of an answer, and the limit of tokens
        leaves room for an answer behind its end."""
        if len(part.sampled) + len(self._findings.closing) >= wanted.max_tokens:
            return False
        tools = offered_tools(self._request)
        reply = await self._session.chat.parse(part.tokens, self._prompt.tokens, tools)
        return reply.reasoning_open

    async def _closed(
        self, index: int, parts: list[Part], stopped: str | None
    ) -> tuple[Choice, Reply]:
        """Parse and record the parts of an answer; `stopped` is the stop string that was found."""
        session, chat = self._session, self._session.chat
        tokens = [token for part in parts for token in part.tokens]
        reply = await chat.parse(tokens, self._prompt.tokens, offered_tools(self._request))
        if stopped:
            reply = _before_stop(reply, stopped)
        ended = bool(tokens) and tokens[-1] in chat.stops
        if not ended and not stopped:
            session.recording.truncated = True
            session.recording.cut_by = self._limit()[1]
        message = session.recording.record(
            self._prompt, self._request.messages, parts, reply, index
        )
        finish = "stop" if ended or stopped else "length"
        choice = Choice(
            index=index,
            sampled=[token for part in parts for token in part.sampled],
            finish="tool_calls" if reply.calls else finish,
            message=message,
            prompt_tokens=0 if index else self.prompt_tokens,
            completion_tokens=len(tokens),
            reasoning_tokens=reply.reasoning_tokens,
            stopped=stopped,
            id=session.recording.turns[-1].id,
        )
        return choice, reply

    def _limit(self) -> tuple[int, CutBy]:
        """Lowest token limit of a completion, and which limit it is (`max_tokens`, `context` or
        `agent`, in this order if equal)."""
        limits: list[tuple[int, CutBy]] = [
            (self._session.max_tokens, "max_tokens"),
            (self._session.max_context - self.prompt_tokens, "context"),
        ]
        if wanted := self._request.max_completion_tokens or self._request.max_tokens:
            limits.append((wanted, "agent"))
        return min(limits, key=lambda limit: limit[0])

    def _sample_request(self, index: int) -> SampleRequest:
        session, request = self._session, self._request
        seed = session.seed_of(self._prompt.call, index)
        if request.seed is not None:
            base = request.seed if session.free else derive(session.seed, "asked", request.seed)
            seed = derive(base, "sample", index)
        free = session.free
        return SampleRequest(
            tokens=self._prompt.tokens,
            images=self._prompt.images,
            max_tokens=self._limit()[0],
            temperature=request.temperature
            if free and request.temperature is not None
            else session.temperature,
            top_p=request.top_p if free and request.top_p is not None else 1.0,
            seed=seed,
            stop_tokens=[] if self._grammar else session.chat.stops,
            top_logprobs=(request.top_logprobs or 0) if request.logprobs else 0,
            grammar=self._grammar,
        )


def _before_stop(reply: Reply, stop: str) -> Reply:
    """A reply up to a stop string, which is in its reasoning, its text or a call."""
    reasoning, found, _ = (reply.reasoning or "").partition(stop)
    content = "" if found else reply.content.partition(stop)[0]
    return reply._replace(reasoning=reasoning or None, content=content, calls=[])


def _joined(deltas: list[Delta]) -> Delta:
    return Delta("".join(d.reasoning for d in deltas), "".join(d.content for d in deltas))


def _too_long(tokens: int, most: int) -> RolloutError:
    return RolloutError.of(
        CONTEXT_FULL,
        f"The prompt has {tokens} tokens; model.max_context is {most}.",
        "Raise model.max_context or shorten what the agent sends.",
    )

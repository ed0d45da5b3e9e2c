"""Gateway access for a script: one key for all its rollouts, one recording per request.

Messages that were sampled here before are replaced by their exact tokens, whichever rollout
requested them: only the preceding messages have to match. Each new completion is recorded under an
id of its own, which the response contains.
"""

import asyncio
import secrets
import uuid
from collections.abc import Sequence
from typing import Any

from engine.integrations.scripts.completions import (
    Completion,
    CompletionPart,
    Completions,
    CompletionWithHistory,
    digest,
)
from engine.policy.base import Policy
from engine.protocol.problems import RolloutError
from engine.protocol.records.runs import RunSpec
from engine.rollout.gateway.requests import ChatRequest
from engine.rollout.gateway.sessions import Session
from engine.rollout.images import RunImages
from engine.rollout.recording import OpenBranch, Part, Prompt, Recording, Turn, spans_of
from engine.rollout.rendering.chat import ChatFormat
from engine.rollout.rendering.syntaxes import Reply

READY_S = 600.0
"""Maximum seconds that a request waits for the model to load or the run to continue."""


class SharedRecording(Recording):
    """Recording of one request, which may continue any completion sampled for the key."""

    def __init__(
        self,
        chat: ChatFormat,
        images: RunImages | None,
        known: Completions,
        version: int,
        temperature: float,
        top_p: float,
    ) -> None:
        super().__init__(chat, images)
        self._known = known
        self._version = version
        self._temperature, self._top_p = temperature, top_p
        self._digests = [""]

    def record(
        self,
        prompt: Prompt,
        messages: list[dict[str, Any]],
        parts: list[Part],
        reply: Reply,
        choice: int = 0,
    ) -> dict[str, Any]:
        message = super().record(prompt, messages, parts, reply, choice)
        turn, parent = self.turns[-1], prompt.parent
        turn.id = f"c-{uuid.uuid4().hex}"
        if parent and self._known.held.get(parent.id) is None:
            parent = None  # forgotten while this was sampled: it holds all of its prompt itself
        begin = parent.length if parent else 0
        self._known.add(
            Completion(
                id=turn.id,
                parent=parent.id if parent else "",
                version=self._version,
                prompt=prompt.tokens[begin:],
                parts=[_stored(part) for part in parts],
                images=[span for span in spans_of(prompt.images) if span.start >= begin],
                digest=digest(self._digest(prompt.messages, len(prompt.messages)), turn.returned),
                reasoning=turn.reasoning,
                content=turn.content,
                settings=turn.settings,
                text=turn.text[len(parent.text) if parent else 0 :],
                temperature=self._temperature,
                top_p=self._top_p,
                truncated=self.truncated,
                tools=prompt.tools,
            )
        )
        self.truncated = False
        return message

    def _turn(self, messages: list[str], place: int) -> Turn | None:
        message = messages[place]
        found = self._known.held.after(digest(self._digest(messages, place), message))
        if found is None:
            return None
        whole: CompletionWithHistory = self._known.held.whole(found)
        self._branches.append(OpenBranch(tokens=list(whole.tokens), images=whole.images))
        return Turn(
            messages=messages[:place],
            returned=message,
            reasoning=found.reasoning,
            content=found.content,
            settings=found.settings,
            ended=whole.tokens[-1] in self._chat.stops,
            branch=len(self._branches) - 1,
            text=whole.text,
            length=len(whole.tokens),
            id=found.id,
        )

    def _digest(self, messages: Sequence[str], count: int) -> str:
        while len(self._digests) <= count:
            place = len(self._digests) - 1
            self._digests.append(digest(self._digests[-1], messages[place]))
        return self._digests[count]


def _stored(part: Part) -> CompletionPart:
    return CompletionPart(
        sampled=[token.token for token in part.sampled],
        logprobs=[token.logprob for token in part.sampled],
        grammar=part.grammar,
        forced=list(part.forced),
    )


class ScriptSessions:
    """Access to the policy of one run for its script."""

    def __init__(self, spec: RunSpec, known: Completions) -> None:
        self.name = spec.name
        self.max_context = spec.config.model.max_context
        self.known = known
        self._config = spec.config
        self._chat: ChatFormat | None = None
        self._policy: Policy | None = None
        self.images: RunImages | None = None
        """Images of the messages; None until the run starts."""
        self.step = 0
        """Number of updates of the current weights."""
        self._open = asyncio.Event()

    @property
    def reads_images(self) -> bool:
        """Whether messages may have images, as far as it is known."""
        return self.images is None or self.images.vision is not None

    def open(self, chat: ChatFormat, policy: Policy, step: int) -> None:
        """Let the script's chat requests pass: `policy` can sample now, with the weights of
        `step`."""
        self._chat, self._policy, self.step = chat, policy, step
        self._open.set()

    def shut(self) -> None:
        """Make the script's chat requests wait until the next `open`, since the policy cannot
        sample."""
        self._open.clear()

    async def enter(self, request: ChatRequest) -> Session:
        """Return a session for a chat request. Waits up to `READY_S` seconds until the policy can
        sample; raises RolloutError after that, or if another model is requested."""
        try:
            async with asyncio.timeout(READY_S):
                await self._open.wait()
        except TimeoutError:
            raise RolloutError.of(
                "outside.not_ready",
                f"The model was not ready within {READY_S:.0f} s.",
                "Open the run in the studio: it may be paused, or loading a large model.",
            ) from None
        self._check_name(request.model)
        assert self._chat is not None
        assert self._policy is not None
        train = self._config.train
        temperature = train.temperature if request.temperature is None else request.temperature
        session = Session(
            chat=self._chat,
            policy=self._policy,
            seed=secrets.randbits(31),
            temperature=train.temperature,
            free=True,
            max_tokens=train.max_tokens,
            max_context=self._config.model.max_context,
            max_turns=1,
            name=f"{self.name}@{self.step}",
            tells_logprobs=True,
            images=self.images,
        )
        top_p = 1.0 if request.top_p is None else request.top_p
        session.recording = SharedRecording(
            self._chat, self.images, self.known, self._policy.version, temperature, top_p
        )
        return session

    def _check_name(self, model: str) -> None:
        """Raise RolloutError unless the requested model is `NAME` (the newest policy) or
        `NAME@STEP` of the current step."""
        name, at, step = model.rpartition("@")
        if model in ("", self.name) or (at and name == self.name and step == str(self.step)):
            return
        if at and name == self.name and step.isdecimal():
            raise RolloutError.of(
                "outside.other_step",
                f"{model} was requested, but this engine samples {self.name}@{self.step} now.",
                "Omit the step for the newest policy; to compare steps, use `atelier eval` or "
                "the Checkpoints page.",
            )
        raise RolloutError.of(
            "outside.other_model",
            f"This API key belongs to {self.name}, not to {model}.",
            "Use model.get_inference_name().",
        )

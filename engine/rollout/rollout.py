"""Rollout: from scenario to trajectory. Failures become data, never a zero reward."""

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from engine.judge.panel import Panel
from engine.policy.base import Policy
from engine.protocol.config.project import ProjectConfig, RewardConfig, TrainConfig
from engine.protocol.problems import Problem, RolloutError
from engine.protocol.records.conversations import (
    IMAGE,
    AgentConversation,
    Branch,
    Message,
    ModelCall,
)
from engine.protocol.records.runs import Scenario, Split, Trajectory
from engine.reward.blend import blend
from engine.reward.overlong import PART, overlong
from engine.reward.reward_hacking import ADDRESSES_JUDGE, signs
from engine.rollout.agents.processes import AgentResult, Agents, Attempt
from engine.rollout.conversations import NamedConversation
from engine.rollout.gateway.gateway import Gateway
from engine.rollout.gateway.requests import MODEL_NAME
from engine.rollout.gateway.sessions import ProviderRecording, Remote, RemoteSession, Session
from engine.rollout.images import RunImages
from engine.rollout.recording import Recording
from engine.rollout.rendering.chat import ChatFormat, reasoning_of, text_of
from engine.rollout.rendering.images import images_of
from engine.runtime.seeds import derive
from engine.runtime.text import replace_surrogates

SHORT_CHARS, SHORT_TOKENS = 20_000, 4_000
TURNS = "turns"
"""Name of the reward part that is the sum of an agent's turn rewards."""


@dataclass(frozen=True)
class RolloutPlace:
    """Position of a rollout in the run, which determines the trajectory's id and seed."""

    split: Split
    step: int
    group: int
    index: int

    @property
    def trajectory_id(self) -> str:
        return f"{self.split[0]}{self.step:05d}-{self.group:03d}-{self.index:03d}"

    def seed(self, run_seed: int) -> int:
        return derive(run_seed, "rollout", self.split, self.step, self.group, self.index)


@dataclass(frozen=True)
class Stage:
    """Resources shared by all rollouts with the policy, and their judges."""

    config: ProjectConfig
    chat: ChatFormat
    policy: Policy
    gateway: Gateway
    base_url: str
    pool: Agents
    judge: Panel | None = None
    contestant: str = ""
    """Name of the contestant, in an evaluation."""
    system: str | None = None
    """System message that replaces the agent's."""
    images: RunImages | None = None
    """Images of the messages."""

    def away(self) -> float:
        """Total seconds so far in which the policy could not respond."""
        return self.policy.away_s

    def session(self, place: RolloutPlace, seed: int) -> Session:
        train, model = self.config.train, self.config.model
        return Session(
            chat=self.chat,
            policy=self.policy,
            seed=seed,
            temperature=train.temperature,
            free=place.split == "validation",
            max_tokens=train.max_tokens,
            max_context=model.max_context,
            max_turns=self.config.agent.max_turns,
            system=self.system,
            images=self.images,
        )


@dataclass(frozen=True)
class RemoteStage:
    """Resources shared by all rollouts with a provider's model."""

    config: ProjectConfig
    remote: Remote
    gateway: Gateway
    base_url: str
    pool: Agents
    contestant: str = ""
    system: str | None = None

    def away(self) -> float:
        return 0.0  # what a provider costs is within its own time limit

    def session(self, place: RolloutPlace, seed: int) -> RemoteSession:
        turns = self.config.agent.max_turns
        return RemoteSession(place.trajectory_id, self.remote, turns, self.system)


async def roll_out(
    stage: Stage | RemoteStage, place: RolloutPlace, scenario: Scenario, seed: int
) -> Trajectory:
    """Run the agent once on a scenario. The trajectory is unscored if its reward cannot be
    determined. Raises the policy's error if its process died; no trajectory exists then."""
    session = stage.session(place, seed)
    version = stage.policy.version if isinstance(stage, Stage) else 0
    key = stage.gateway.open(session)
    start_s, started_at = time.monotonic(), time.time()
    result, problem = AgentResult({}, {}, ""), None
    try:
        attempt = Attempt(scenario.data, stage.base_url, key, MODEL_NAME)
        result = await stage.pool.run(attempt, stage.away)
    except RolloutError as error:
        problem = error.problem.model_copy(update=replace_surrogates(error.problem.model_dump()))
    finally:
        stage.gateway.close(key)
    if session.failure:
        raise session.failure
    timing = Timing(started_at, time.monotonic() - start_s, version)
    arguments = (stage, place, scenario, seed, session, result, problem, timing)
    try:
        if _is_short(session.recording):
            return _recorded(*arguments)
        return await asyncio.to_thread(_recorded, *arguments)
    except (RolloutError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
        bare = _unrecorded(place, scenario, seed, timing, error)
        return bare.model_copy(update={"contestant": stage.contestant, **_paid(session)})


def _is_short(recording: Recording | ProviderRecording) -> bool:
    """Whether the recording is short enough to be recorded on the event loop."""
    turns = recording.turns if isinstance(recording, Recording) else []
    return recording.conversations.chars < SHORT_CHARS and all(
        turn.length < SHORT_TOKENS for turn in turns
    )


class Timing(NamedTuple):
    """Time of a rollout, and version of the weights that sampled it."""

    started_at: float
    """Unix seconds."""
    duration_s: float
    version: int


def _identity(place: RolloutPlace, scenario: Scenario) -> dict[str, Any]:
    return {
        "id": place.trajectory_id,
        "split": place.split,
        "step": place.step,
        "group": place.group,
        "index": place.index,
        "scenario_id": scenario.id,
        "title": scenario.title,
    }


def _unrecorded(
    place: RolloutPlace, scenario: Scenario, seed: int, timing: Timing, error: Exception
) -> Trajectory:
    """Unscored trajectory without messages, for data of an agent that cannot be recorded. The error
    affects no other rollout."""
    return Trajectory(
        **_identity(place, scenario),
        reward=None,
        problem=Problem(
            code="agent.not_recordable",
            message="The agent's messages or result cannot be stored: "
            f"{type(error).__name__}: {replace_surrogates(str(error))[:300]}",
            hint="Check the messages and results of this scenario.",
        ),
        duration_s=timing.duration_s,
        started_at=timing.started_at,
        policy_version=timing.version,
        seed=seed,
    )


def _recorded(
    stage: Stage | RemoteStage,
    place: RolloutPlace,
    scenario: Scenario,
    seed: int,
    session: Session | RemoteSession,
    result: AgentResult,
    problem: Problem | None,
    timing: Timing,
) -> Trajectory:
    """Trajectory of a finished rollout; called in a thread if it is long."""
    recording = session.recording
    named = recording.conversations.named(stage.config.agent.conversations)
    messages = _messages(named[0]) if named else []
    metrics = {**signs(messages), **_counts(session), **result.metrics}
    reward, parts = None, result.parts
    problem = _trouble(session) or problem or _unheard(session) or _miscounted(session, result)
    awaits_judge = problem is None and stage.config.judge.enabled
    if problem is None:
        parts = _with_length(stage.config.train, place.split, parts, recording, named)
    if problem is None and not awaits_judge:
        try:
            reward = blend(stage.config.reward, parts, metrics)
        except RolloutError as error:
            problem = error.problem
    return Trajectory(
        **_identity(place, scenario),
        reward=reward,
        parts=parts,
        problem=problem,
        turns=len(recording.turns),
        sampled_tokens=_sampled(session),
        truncated=recording.truncated,
        cut_by=recording.cut_by,
        awaits_judge=awaits_judge,
        duration_s=timing.duration_s,
        messages=messages,
        branches=_valued(recording, named, [] if problem else result.turns, stage.config.reward),
        conversations=_conversations(named),
        metrics=metrics,
        marked=metrics[ADDRESSES_JUDGE] > 0,
        tools=_tools(named[0]) if named else [],
        output=replace_surrogates(result.output),
        started_at=timing.started_at,
        policy_version=timing.version,
        seed=seed,
        calls=_provider_calls(recording, named),
        contestant=stage.contestant,
        **_paid(session),
    )


def _counts(session: Session | RemoteSession) -> dict[str, float]:
    """Metrics of the model calls that are not zero: calls whose token limit was lowered to the
    run's, tool calls that could not be parsed, tokens of reasoning, and answers whose reasoning
    the thinking budget closed."""
    if isinstance(session, RemoteSession):
        return {}
    recording = session.recording
    counts = {
        "capped_calls": session.capped_calls,
        "malformed_calls": recording.malformed_calls,
        "reasoning_tokens": recording.reasoning_tokens,
        "reasoning_closed": recording.reasoning_closed,
    }
    return {name: float(count) for name, count in counts.items() if count}


def _with_length(
    train: TrainConfig,
    split: Split,
    parts: dict[str, float],
    recording: Recording | ProviderRecording,
    named: list[NamedConversation],
) -> dict[str, float]:
    """Reward parts, with the length penalty of the trained answers added in training."""
    share = train.algorithm.overlong
    if not (share and parts) or split != "train":
        return parts
    trained = [place for place, one in enumerate(named) if one.train]
    branches = [one for one in recording.branches(_places(named)) if one.conversation in trained]
    lengths = [end - start for branch in branches for start, end in branch.turns]
    return {**parts, PART: overlong(lengths, train.max_tokens, share)}


def _trouble(session: Session | RemoteSession) -> Problem | None:
    return session.trouble if isinstance(session, RemoteSession) else None


def _sampled(session: Session | RemoteSession) -> int:
    if isinstance(session, RemoteSession):
        return sum(usage.completion_tokens for usage in session.recording.turns)
    return sum(branch.sampled for branch in session.recording.branches())


def _paid(session: Session | RemoteSession) -> dict[str, Any]:
    """Provider name and cost in USD of the remote calls of a rollout."""
    if not isinstance(session, RemoteSession):
        return {}
    answered = math.fsum(usage.cost_usd for usage in session.recording.turns)
    cost = answered + session.lost_usd
    return {"provider": session.remote.name, "cost_usd": cost}


def _unheard(session: Session | RemoteSession) -> Problem | None:
    if session.recording.turns:
        return None
    return Problem(
        code="agent.never_asked",
        message="The agent made no model call.",
        hint="Call model.base_url with model.api_key in it (or OPENAI_BASE_URL, OPENAI_API_KEY).",
    )


def _miscounted(session: Session | RemoteSession, result: AgentResult) -> Problem | None:
    reward_count, answers = len(result.turns), len(session.recording.turns)
    if reward_count in (0, answers):
        return None
    return Problem(
        code="agent.turn_count",
        message=f"The agent returned {reward_count} turn_rewards for {answers} model responses.",
        hint="Return one number per model response, or omit turn_rewards.",
    )


def _valued(
    recording: Recording | ProviderRecording,
    named: list[NamedConversation],
    turns: Sequence[float],
    config: RewardConfig,
) -> list[Branch]:
    branches = recording.branches(_places(named))
    if not turns or not isinstance(recording, Recording):
        return branches
    weight = config.weights.get(TURNS, 1.0)
    return [
        branch.model_copy(update={"rewards": [weight * turns[place] for place in places]})
        for branch, places in zip(branches, recording.places(), strict=True)
    ]


def _places(named: list[NamedConversation]) -> dict[int, int]:
    """Index of each conversation in the record by the index in which they began."""
    return {one.number: place for place, one in enumerate(named)}


def _provider_calls(
    recording: Recording | ProviderRecording, named: list[NamedConversation]
) -> list[ModelCall]:
    if isinstance(recording, Recording):
        return []
    places = _places(named)
    return [
        call.model_copy(update={"conversation": places[call.conversation]})
        for call in recording.calls
    ]


def _conversations(named: list[NamedConversation]) -> list[AgentConversation]:
    """Records of the conversations; empty if there is one only, which is trained."""
    if len(named) == 1 and named[0].train:
        return []
    return [
        AgentConversation(
            name=one.name,
            trained=one.train,
            answers=one.conversation.answers,
            messages=_messages(one) if place else [],
            tools=_tools(one) if place else [],
        )
        for place, one in enumerate(named)
    ]


def _messages(named: NamedConversation) -> list[Message]:
    return [_message(replace_surrogates(message)) for message in named.conversation.messages]


def _tools(named: NamedConversation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = replace_surrogates(named.conversation.tools)
    return found


def _message(message: dict[str, Any]) -> Message:
    images = images_of([message])
    content = text_of(message.get("content"))
    if images:  # the character stands for them alone
        content = "".join(
            text_of([part]) if part["type"] == "image" else text_of([part]).replace(IMAGE, " ")
            for part in message["content"]
        )
    return Message(
        role=str(message.get("role", "")),
        content=content,
        images=images,
        reasoning=reasoning_of(message),
        tool_calls=message.get("tool_calls") or [],
        tool_call_id=message.get("tool_call_id"),
        name=message.get("name"),
    )

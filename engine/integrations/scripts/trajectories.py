"""Conversion of submitted groups into trajectories with the tokens that were sampled.

A choice is identified by its id, or by its tokens and log-probs if another library has dropped the
id. Choices that were sampled elsewhere can be logged but never trained on: nothing is re-tokenised.
"""

from collections.abc import Iterable
from typing import Any

from engine.integrations.importers.art_groups import ArtAttempt, ArtGroup
from engine.integrations.importers.art_trajectories import attempts_of
from engine.integrations.scripts.completions import Completion, CompletionIndex, CompletionPart
from engine.policy.base import SampledToken
from engine.protocol.problems import Refused
from engine.protocol.records.conversations import Branch
from engine.protocol.records.judging import PART as RULER
from engine.protocol.records.runs import Split, Trajectory
from engine.protocol.requests.scripts import CHOICE_ID, SentGroup, SentHistory
from engine.rollout.recording import OpenBranch, Part
from engine.rollout.rendering.chat import ChatFormat
from engine.runtime.text import replace_surrogates

RULER_SCORE = "ruler_score"
"""Metric in which ART's ruler_score_group stores its score."""


def trajectories_of(
    groups: Iterable[SentGroup],
    split: Split,
    step: int,
    known: CompletionIndex,
    chat: ChatFormat,
    temperature: float | None,
    first: int = 0,
    prefix: str = "",
) -> tuple[list[list[Trajectory]], int]:
    """Return the script's non-empty groups as groups of a step, numbered from `first`, and the
    number of metrics that were not finite. `known` has the completions sampled for the script,
    `prefix` precedes the scenario ids.

    With `temperature` they are for training: every choice must have been sampled here at that
    temperature. Raises Refused with the first that was not, ConfigError for an invalid value."""
    made: list[list[Trajectory]] = []
    dropped = 0
    for place, sent in enumerate(groups):
        number = first + len(made)
        siblings, lost = attempts_of(_as_art(sent, place), split, step, number, prefix)
        if not siblings:
            continue
        dropped += lost
        for index, attempt in enumerate(sent.trajectories):
            where = f"group {place}, trajectory {index}"
            histories = [
                _completions_of(one, known, temperature is not None, where)
                for one in [attempt, *attempt.additional_histories]
            ]
            if temperature is not None:
                _check(histories, temperature, where)
            siblings[index] = _with_tokens(siblings[index], histories, known, chat)
        if split == "train":
            siblings = [_of_step(one, step) for one in siblings]
        made.append(siblings)
    return made, dropped


def dropped_words(step: int, dropped: int) -> str:
    """Log message that `dropped` metrics of a step were skipped because they are not finite."""
    many = "1 metric" if dropped == 1 else f"{dropped} metrics"
    return f"Step {step}: {many} skipped (infinite or NaN)."


def _as_art(sent: SentGroup, place: int) -> ArtGroup:
    data = replace_surrogates(sent.model_dump())
    where = f"group {place}"
    attempts = [
        ArtAttempt(f"{where}, trajectory {index}", one)
        for index, one in enumerate(data["trajectories"])
    ]
    return ArtGroup(where, data, attempts)


def _completions_of(
    history: SentHistory, known: CompletionIndex, required: bool, where: str
) -> list[Completion]:
    """Return the policy's completions in order. Choices of others raise Refused if `required`, and
    are skipped otherwise."""
    completions = []
    for item in history.messages_and_choices:
        if "finish_reason" not in item:
            continue
        one = _find(item, known)
        if one is not None:
            completions.append(one)
        elif required:
            text = str((item.get("message") or {}).get("content") or "")
            raise Refused.of(
                "outside.unknown_completion",
                f"A completion was not sampled by Atelier, or is no longer stored: {text[:60]!r}.",
                "Add the choices that model.openai_client() returned, without changing them and "
                "within a few training steps. Add completions of other models as plain messages.",
                where=where,
            )
    return completions


def _find(choice: dict[str, Any], known: CompletionIndex) -> Completion | None:
    if (one := known.get(str(choice.get(CHOICE_ID, "")))) is not None:
        return one
    content = (choice.get("logprobs") or {}).get("content") or []
    return known.sampled_as([t["token"] for t in content], [t["logprob"] for t in content])


def _check(histories: list[list[Completion]], temperature: float, where: str) -> None:
    for one in (one for history in histories for one in history):
        if one.temperature != temperature or one.top_p != 1:
            raise Refused.of(
                "outside.other_temperature",
                f"A completion was sampled at temperature {one.temperature:g} and top_p "
                f"{one.top_p:g}; this run needs temperature {temperature:g} and top_p 1.",
                "Omit temperature and top_p in requests that are trained on, or set "
                "train.temperature.",
                where=where,
            )


def _with_tokens(
    one: Trajectory, histories: list[list[Completion]], known: CompletionIndex, chat: ChatFormat
) -> Trajectory:
    branches, everything = branches_of(histories, known, chat)
    own = one.metrics.get(RULER_SCORE)
    judged = own is not None and own == one.reward
    update: dict[str, Any] = {"parts": {RULER: own}} if judged else {}
    if everything:
        update |= {
            "branches": branches,
            "turns": len(everything),
            "sampled_tokens": sum(branch.sampled for branch in branches),
            "truncated": any(each.truncated for each in everything),
            "policy_version": min(each.version for each in everything),
            "tools": one.tools or everything[-1].tools,
        }
    return one.model_copy(update=update)


def _of_step(one: Trajectory, step: int) -> Trajectory:
    """Give a trajectory without recorded tokens the policy version before this step; return others
    unchanged."""
    return one if one.branches else one.model_copy(update={"policy_version": step - 1})


def branches_of(
    histories: list[list[Completion]], known: CompletionIndex, chat: ChatFormat
) -> tuple[list[Branch], list[Completion]]:
    """Return token sequences of conversations (`histories`: completions in order), and their
    completions without duplicates. A completion extends the last sequence if its prompt begins with
    it, and starts a new one otherwise."""
    found: list[OpenBranch] = []
    trained: dict[str, Completion] = {}
    for history in histories:
        for one in history:
            if one.id in trained:
                continue
            whole = known.whole(one)
            last = found[-1].tokens if found else None
            if last is None or whole.tokens[: len(last)] != last:
                found.append(OpenBranch())
            found[-1].tokens, found[-1].images = whole.tokens[: whole.start], whole.images
            for part in one.parts:
                found[-1].append(_part(part))
            trained[one.id] = one
    return [branch.record(chat) for branch in found], list(trained.values())


def _part(stored: CompletionPart) -> Part:
    pairs = zip(stored.sampled, stored.logprobs, strict=True)
    sampled = [SampledToken(token, logprob, []) for token, logprob in pairs]
    return Part(sampled, stored.grammar, stored.forced)

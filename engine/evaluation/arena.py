"""Arena of a project: a run folder in which each message to several models is a group."""

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx

from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.validation import changed_config
from engine.protocol.problems import RolloutError
from engine.protocol.records.labels import Label
from engine.protocol.records.runs import Interval, RunSpec
from engine.protocol.requests.arena import Duel, Tally
from engine.rollout.agents.processes import AgentResult, Attempt
from engine.runtime.ids import ulid
from engine.runtime.timeouts import Away, never
from engine.storage.project import load_config
from engine.storage.run_folder.run import make_open_ended_run, read_spec, run_reader, specs_of
from engine.trust.projects import is_trusted, is_trusted_run

Z = 1.959963984540054
"""Quantile of the normal distribution for 95 %."""


def duels(labels: Iterable[Label], names: Mapping[str, str]) -> list[Duel]:
    """Count votes per pair of models, most votes first; undone labels do not count. `names` maps
    trajectory ids to models. A ranking of several trajectories counts as one vote per pair."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for label in labels:
        if not label.holds():
            continue
        for word in label.words:
            if word.kind == "order":
                _count(word.order, names, counts)
    return [
        Duel(
            name=first,
            against=second,
            wins=count["first"],
            ties=count["tie"],
            losses=count["second"],
            share=wilson(count["first"] + count["tie"] / 2, count.total()),
        )
        for (first, second), count in sorted(counts.items(), key=lambda item: -item[1].total())
    ]


def wilson(wins: float, votes: int) -> Interval:
    """Wilson's score interval of the share wins / votes (1927); `votes` is at least 1."""
    share = wins / votes
    scale = 1 + Z**2 / votes
    middle = (share + Z**2 / (2 * votes)) / scale
    half = Z * math.sqrt(share * (1 - share) / votes + Z**2 / (4 * votes**2)) / scale
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return Interval(mean=share, low=low, high=high, count=votes)


def _count(
    order: Iterable[Iterable[str]],
    names: Mapping[str, str],
    counts: dict[tuple[str, str], Counter[str]],
) -> None:
    placed = [
        (rank, names[one]) for rank, layer in enumerate(order) for one in layer if one in names
    ]
    for (rank, one), (other_rank, other) in combinations(placed, 2):
        if one == other:
            continue
        pair = (min(one, other), max(one, other))
        higher = "first" if one == pair[0] else "second"  # of two, the earlier of `placed`
        outcome = "tie" if rank == other_rank else higher
        counts.setdefault(pair, Counter())[outcome] += 1


NAME = "arena"


def find_arena(project: Path) -> Path | None:
    """Return the run folder of a project's arena, which stores its side-by-side chats; one made on
    this machine comes first. None without one."""
    found = [folder for folder, spec in specs_of(project) if spec.kind == "arena"]
    return min(found, key=lambda folder: not is_trusted_run(folder), default=None)


async def make_arena(project: Path) -> Path:
    """Create the arena of a project, the run that stores its side-by-side chats, and return its
    folder. Raises ConfigError if the project cannot be read."""
    config = load_config(project)
    spec = RunSpec(
        id=ulid(),
        name=NAME,
        kind="arena",
        project=config.name or project.name,
        started_at=time.time(),
        config=without_judge(config),
        model_path="",
    )
    return await make_open_ended_run(project, spec)


async def find_or_make_arena(project: Path) -> Path:
    """Return the run folder of a project's arena, which stores its side-by-side chats; it is
    created if missing. Raises ConfigError if the project cannot be read."""
    found = await asyncio.to_thread(find_arena, project)
    if found is None or (is_trusted(project) and not is_trusted_run(found)):
        return await make_arena(project)  # a stranger's is not added to: its settings would count
    return found


def without_judge(config: ProjectConfig) -> ProjectConfig:
    """Settings with the judge off, for side-by-side chats (the arena), where people vote."""
    return changed_config(config, {"judge.enabled": False})


def read_tally(project: Path) -> Tally:
    folder = find_arena(project)
    if folder is None:
        return Tally()
    with run_reader(folder) as reader:
        labels = reader.labels("validation")
        named = [
            name
            for label in labels
            for word in label.words
            for layer in word.order
            for name in layer
        ]
        names = {row.id: row.contestant for row in reader.summaries(named)}
    votes = sum(label.holds() and any(w.kind == "order" for w in label.words) for label in labels)
    return Tally(run_id=read_spec(folder).id, votes=votes, pairs=duels(labels, names))


PATIENCE_S = 600.0


class Chat:
    """Chat request sent through the gateway like those of agents, so that it is recorded in the
    same way."""

    def __init__(
        self,
        messages: list[dict[str, Any]],
        temperature: float,
        max_tokens: int,
        on_text: Callable[[str], None],
        tools: Sequence[dict[str, Any]] = (),
    ) -> None:
        self._body: dict[str, Any] = {
            "messages": messages,
            "temperature": temperature,
            "max_tokens": max_tokens,
            "stream": True,
        }
        if tools:
            self._body["tools"] = list(tools)
        self._on_text = on_text

    async def run(self, attempt: Attempt, away: Away = never) -> AgentResult:
        """Stream one answer of the model; the result has no reward. `away` is ignored. Raises
        RolloutError if it fails."""
        async with (
            httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S, verify=False) as client,
            client.stream(
                "POST",
                f"{attempt.base_url}/chat/completions",
                json={"model": attempt.model, **self._body},
                headers={"Authorization": f"Bearer {attempt.api_key}"},
            ) as answer,
        ):
            if answer.is_error:
                raise _refused(await answer.aread())
            async for line in answer.aiter_lines():
                data = line.removeprefix("data: ")
                if line.startswith("data: ") and data != "[DONE]":
                    self._take(data)
        return AgentResult({}, {}, "")

    def _take(self, data: str) -> None:
        event = json.loads(data)
        if "error" in event:
            raise _refused(data.encode())
        for choice in event["choices"]:
            if text := choice["delta"].get("content"):
                self._on_text(text)


def _refused(body: bytes) -> RolloutError:
    error = json.loads(body)["error"]
    return RolloutError.of(error.get("code") or error["type"], error["message"])

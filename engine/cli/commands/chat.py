"""`chat`: send a question or a scenario to several models and compare their responses."""

import argparse
import asyncio
import os
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

from engine.cli.engine_connection import engine_for
from engine.cli.terminal import figure, say, say_json, write
from engine.client import EngineClient
from engine.protocol.records.conversations import in_text
from engine.protocol.records.judging import keys_in
from engine.protocol.records.runs import Trajectory
from engine.protocol.requests.arena import ArenaTicked, AskArena


def run(arguments: argparse.Namespace) -> int:
    return asyncio.run(chat(arguments))


async def chat(arguments: argparse.Namespace) -> int:
    async with engine_for(arguments.workspace) as client:
        if keys := keys_in(os.environ, [name for name in arguments.model if "/" in name]):
            await client.lend_keys(keys)
        if arguments.scenario or arguments.question:
            await ask(client, arguments, [])
        else:
            await chat_loop(client, arguments)
    return 0


async def chat_loop(client: EngineClient, arguments: argparse.Namespace) -> None:
    """Read questions from stdin, one per line, until its end, and print the answers of all models;
    each model continues its own chat."""
    chats: list[list[dict[str, Any]]] = []
    while question := await asyncio.to_thread(sys.stdin.readline):
        arguments.question = question.strip()
        if arguments.question:
            chats = await ask(client, arguments, chats)


async def ask(
    client: EngineClient, arguments: argparse.Namespace, chats: list[list[dict[str, Any]]]
) -> list[list[dict[str, Any]]]:
    """Ask all models the question in `arguments`, after their chats so far (empty: none), and print
    the answers. Returns the new conversation with each."""
    models = arguments.model or ["base"]
    question = {"role": "user", "content": arguments.question}
    chats = [[*chat, question] for chat in chats or [[]]] if not arguments.scenario else []
    request = AskArena(
        project=str(Path(arguments.project).expanduser().resolve()),
        models=models,
        chats=chats,
        scenario=arguments.scenario,
        seed=arguments.seed,
        temperature=arguments.temperature,
        max_tokens=arguments.max_tokens,
    )
    printer = _Printer(arguments.json)
    after = []
    async with aclosing(client.ask_arena(request)) as ticks:
        async for tick in ticks:
            printer.take(tick)
            if tick.trajectory:
                after.append([m.model_dump(exclude_none=True) for m in tick.trajectory.messages])
    return after


class _Printer:
    def __init__(self, as_json: bool) -> None:
        self._json = as_json
        self._names: list[str] = []
        self._place = -1

    def take(self, tick: ArenaTicked) -> None:
        if self._json:
            return say_json(tick)
        if tick.kind == "begun":
            self._names = tick.names
        elif tick.kind == "said":
            self._head(tick.place)
            write(tick.text)
        elif tick.trajectory:
            self._head(tick.place)
            self._end(tick.trajectory)

    def _head(self, place: int) -> None:
        if place != self._place:
            self._place = place
            say(f"── {self._names[place]}")

    def _end(self, attempt: Trajectory) -> None:
        text = "".join(f"\n{m.role}: {m.content}" for m in in_text(attempt.messages))
        failed = attempt.problem and not attempt.problem.code.startswith("reward.")
        if attempt.scenario_id != "chat":
            say(text.strip())
        say("" if not failed else f"\n{attempt.problem}")
        say(
            f"   {attempt.turns} calls · {attempt.sampled_tokens} tokens · "
            f"{attempt.duration_s:.1f} s · reward {figure(attempt.reward)}\n"
        )

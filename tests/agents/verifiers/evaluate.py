"""Scores stored completions by verifiers itself: `evaluate.py PROJECT CASES OUT`.

CASES is a JSON list of {"row", "answers"}; a server repeats the answers to the library's own
evaluation. OUT gets a list of {"reward", "parts", "metrics"}. Runs in the project's environment.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

PROJECT = Path(sys.argv[1])
SETTINGS = json.loads((PROJECT / "environment.json").read_text())
sys.path[:0] = [str(PROJECT), str(PROJECT / "environment")]


class Replay:
    """Chat completions: the path names a case, whose answers are given in order."""

    def __init__(self, cases):
        self.left = [list(case["answers"]) for case in cases]

    async def serve(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = {k.lower(): v for k, _, v in (x.partition(": ") for x in head.split("\r\n"))}
        body = json.loads(await reader.readexactly(int(fields["content-length"])))
        case = int(head.split()[1].split("/")[1])
        message = {"role": "assistant", "content": self.left[case].pop(0)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {"id": "r", "object": "chat.completion", "created": 1, "model": body["model"]}
        data = json.dumps({**answer, "choices": [choice], "usage": usage}).encode()
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()
        writer.close()


async def by_environment(cases, port):
    from importlib import import_module

    from openai import AsyncOpenAI
    from verifiers.clients import OpenAIChatCompletionsClient

    environment = import_module(SETTINGS["module"]).load_environment(**SETTINGS["arguments"])
    weighted = {}
    for rubric in getattr(environment.rubric, "rubrics", [environment.rubric]):
        weighted |= {f.__name__: w for f, w in zip(rubric.funcs, rubric.weights, strict=True)}
    found = []
    for number, case in enumerate(cases):
        openai = AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/{number}/v1", api_key="x")
        client = OpenAIChatCompletionsClient(openai)
        output = await environment.run_rollout(case["row"], client, "m", {})
        metrics = output["metrics"]
        parts = {name: value for name, value in metrics.items() if weighted[name]}
        others = {name: value for name, value in metrics.items() if not weighted[name]}
        found.append({"reward": output["reward"], "parts": parts, "metrics": others})
    return found


async def by_taskset(cases, port):
    import verifiers.v1 as vf
    from verifiers.v1.utils.loaders import load_environment, resolve_env_config

    role = SETTINGS.get("role", "agent")
    seat = {"harness": {"id": "chat_harness"}, "runtime": {"type": "subprocess"}}
    seat = {} if SETTINGS.get("own_agent") else seat
    taskset = {**SETTINGS["arguments"], "id": SETTINGS["module"]}
    environment = load_environment(resolve_env_config({"taskset": taskset, role: seat}))
    task_type = type(environment.taskset).task_type()
    os.environ["REPLAY_KEY"] = "x"
    found = []
    async with environment.serving():
        for number, case in enumerate(cases):
            data = task_type.data_type().model_validate(case["row"])
            url = f"http://127.0.0.1:{port}/{number}/v1"
            client = vf.EvalClientConfig(base_url=url, api_key_var="REPLAY_KEY")
            task = task_type(data, environment.config.taskset.task)
            (slot,) = environment.slots(task)
            context = vf.ModelContext(model="m", client=client)
            episode = await environment.run_slot(slot, context)
            (trace,) = episode.traces
            if not episode.ok:
                raise RuntimeError(f"{episode.errors} {trace.errors}")
            parts = {name: reward.value for name, reward in trace.rewards.items()}
            found.append({"reward": trace.reward, "parts": parts, "metrics": trace.metrics})
    return found


async def main():
    cases = json.loads(Path(sys.argv[2]).read_text())
    server = await asyncio.start_server(Replay(cases).serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    score = by_taskset if SETTINGS["kind"] == "taskset" else by_environment
    Path(sys.argv[3]).write_text(json.dumps(await score(cases, port)))


asyncio.run(main())

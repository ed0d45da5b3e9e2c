"""Hostile agents that send and return harmful data: each rollout is unscored with its reason, and
the run continues to its end."""

import json
from pathlib import Path

from engine.protocol.events.run import RunFinished, StepFinished, TrajectoryRecorded
from tests.engine_http.conftest import Engine, make_project

AGENT = '''
import asyncio, gc, json, os, sys, threading
import openai

LINE = int(sys.argv[-2])  # the descriptor on which this process answers the engine

def forge(*lines):
    for line in lines:
        os.write(LINE, line if isinstance(line, bytes) else json.dumps(line).encode() + b"\\n")

def mine():
    """The number of this attempt's request, as the process that runs it knows it."""
    host = next(one for one in gc.get_objects() if type(one).__name__ == "Host")
    return list(host.running)[-1]

def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value

async def ask(model, **changes):
    address = dict(base_url=model.base_url, api_key=model.api_key, max_retries=0)
    async with openai.AsyncOpenAI(**address) as client:
        body = {"model": model.name, "messages": [{"role": "user", "content": "Hello"}], **changes}
        return await client.post("/chat/completions", body=body, cast_to=object)

async def rollout(scenario, model):
    await ask(model)
    return await globals()[scenario["id"]](model)

async def good(model):
    return {"reward": (await ask(model))["usage"]["completion_tokens"] / 8}
async def name_5(model):
    await ask(model, messages=[{"role": "user", "content": "x", "name": 5}])
async def tool_call_id_5(model):
    await ask(model, messages=[{"role": "tool", "content": "x", "tool_call_id": 5}])
async def deep(model):
    await ask(model, messages=[{"role": "user", "content": "x", "extra": nested(200)}])
async def caught(model):
    """The agent minds nothing; what it was refused is not in the record."""
    for changes in ({"messages": [{"role": "user", "content": "x", "name": 5}]}, {"n": -1}):
        try:
            await ask(model, **changes)
        except openai.BadRequestError as error:
            assert error.body["code"] == "gateway.bad_request"
    return 0.5
async def deep_arguments(model):
    call = {"id": "c", "type": "function",
            "function": {"name": "f", "arguments": "[" * 30_000 + "]" * 30_000}}
    await ask(model, messages=[{"role": "assistant", "content": None, "tool_calls": [call]}])
    return 0.5
async def tiny(model):
    return {"reward": -1.7e308}
async def metric(model):
    return {"reward": 1.0, "metrics": {"x": 1.7e308}}
async def long_name(model):
    return {"reward": 1.0, "metrics": {"x" * 10_000_000: 1.0}}
async def big_int(model):
    return {"reward": 10 ** 400}
async def no_json(model):
    forge(b"}{\\n")
    await asyncio.sleep(60)
async def number(model):
    forge(5)
    await asyncio.sleep(60)
async def no_id(model):
    forge({"ok": {"parts": {}}})
    await asyncio.sleep(60)
async def deep_line(model):
    forge(b"[" * 100_000 + b"]" * 100_000 + b"\\n")
    await asyncio.sleep(60)
async def long_line(model):
    while True:
        forge(b"x" * 1_000_000)
async def bare_results(model):
    forge({"id": mine(), "ok": {}})
    await asyncio.sleep(60)
async def bad_error(model):
    forge({"id": mine(), "error": {"code": 5}})
    await asyncio.sleep(60)
async def infinite(model):
    sent = {"parts": {"rules": float("inf")}, "metrics": {}, "turns": [], "output": ""}
    forge({"id": mine(), "ok": sent}, *({"id": number, "ok": sent} for number in range(5000)))
    await asyncio.sleep(60)
async def flood(model):
    line = json.dumps({"id": mine(), "part": {"a": 1}}).encode() + b"\\n"
    threading.Thread(target=lambda: [forge(line) for _ in range(50_000)], daemon=True).start()
    return 0.5
async def shut(model):
    import socket
    socket.socket(fileno=os.dup(LINE)).shutdown(socket.SHUT_RDWR)
    await asyncio.sleep(60)
'''
REASONS = {
    "deep_arguments": ("agent.raised", "too many to fit"),
    "name_5": ("agent.raised", "messages.0.name"),
    "tool_call_id_5": ("agent.raised", "messages.0.tool_call_id"),
    "deep": ("agent.raised", "nested"),
    "tiny": ("agent.bad_result", "out of range"),
    "metric": ("agent.bad_result", "metrics.x"),
    "long_name": ("agent.bad_result", "10000000 characters"),
    "big_int": ("agent.bad_result", "not a number"),
    "no_json": ("agent.died", "unreadable"),
    "number": ("agent.died", "unreadable"),
    "no_id": ("agent.died", "unreadable"),
    "deep_line": ("agent.died", "unreadable"),
    "long_line": ("agent.died", "unreadable"),
    "bare_results": ("agent.bad_result", "parts"),
    "bad_error": ("agent.died", "unreadable"),
    "infinite": ("agent.bad_result", "parts.rules"),
    "shut": ("agent.died", "ended"),
}
FINE = ("good", "caught", "flood")


def test_hostile_rollouts_are_unscored_and_affect_no_other(
    workspace: Path, tiny_model: Path, engine: Engine
) -> None:
    """Each process runs one rollout at a time, so that forged messages reach no other rollout."""
    project = make_project(workspace / "hostile", tiny_model, AGENT)
    names = [*FINE, *REASONS]
    lines = "".join(json.dumps({"id": name}) + "\n" for name in names)
    (project / "scenarios" / "train.jsonl").write_text(lines)
    run = engine.train(
        project,
        **{"train.steps": 1, "train.groups": len(names), "train.group_size": 2},
        **{"train.validate_every": 0, "agent.timeout_s": 15, "agent.concurrency": 1},
    )
    events = engine.wait(run, timeout_s=200)
    assert isinstance(events[-1], RunFinished), events[-1]
    everything = [e.trajectory for e in events if isinstance(e, TrajectoryRecorded)]
    trajectories = [one for one in everything if one.split == "train"]
    assert len(trajectories) == 2 * len(names)
    for one in trajectories:
        if one.scenario_id in FINE:
            assert one.reward is not None, one.problem
        else:
            code, words = REASONS[one.scenario_id]
            assert one.reward is None
            assert one.problem is not None
            assert one.problem.code == code, (one.scenario_id, one.problem)
            assert words in one.problem.message, (one.scenario_id, one.problem)
            assert len(one.problem.message) < 1000
    (step,) = [e for e in events if isinstance(e, StepFinished)]
    assert step.metrics["unscored"] == 2 * len(REASONS)
    print(f"{len(REASONS)} attacks, each twice; the run finished")

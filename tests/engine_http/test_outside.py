"""External script with rollouts of its own over plain HTTP, as any library could send them."""

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.client import EngineClient
from engine.protocol.config.algorithm import Algorithm
from engine.protocol.problems import Refused
from engine.protocol.requests.runs import Command, StartRun, TrajectoryQuery
from engine.protocol.requests.scripts import (
    CHOICE_ID,
    LogOutside,
    SentAttempt,
    SentGroup,
    SentHistory,
    TrainGroups,
)
from tests.engine_http.conftest import Engine, make_project, start_engine, stop_engine, until
from tests.engine_http.outside_script import Script

SHARED: list[Script] = []
"""Script of the module, while its run may be open."""


@pytest.fixture(scope="module")
def module_engine(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Engine over the workspace of the module."""
    engine = start_engine(home)
    yield engine
    stop_engine(engine)


@pytest.fixture(scope="module")
def script(module_engine: Engine, tiny_model: Path) -> Iterator[Script]:
    """External run that the tests of this module share and extend; `no_open_run` closes it."""
    script = Script(module_engine, tiny_model)
    script.open()
    SHARED.append(script)
    yield script
    SHARED.clear()
    script.close()


@pytest.fixture
def no_open_run() -> None:
    """Close the shared run, so that another run can be started."""
    for script in SHARED:
        script.close()


def read_trajectories(script: Script, **query: Any) -> list[Any]:
    run = script.found.run.id

    async def all_of(client: EngineClient) -> list[Any]:
        page = await client.trajectories(run, TrajectoryQuery(sort="step", **query))
        return [await client.trajectory(run, one.id) for one in page.items]

    return sorted(script.engine.call(all_of), key=lambda one: one.id)


def test_submitted_groups_train_one_step(script: Script) -> None:
    groups = script.groups()
    done = script.train(groups)

    assert not done.skipped
    assert done.metrics["reward/mean"] == 1.0
    assert done.metrics["unscored"] == 2.0
    assert done.metrics["logprob_gap/max"] < 1e-4
    assert Path(done.checkpoint).is_dir()
    stored = read_trajectories(script, split="train", step=done.step)
    assert [one.reward for one in stored] == [0.0, 1.0, 2.0, None] * 2
    choices = [one for one in groups[0].trajectories[0].messages_and_choices if CHOICE_ID in one]
    sampled = [t["logprob"] for choice in choices for t in choice["logprobs"]["content"]]
    branch = stored[0].branches[0]
    assert branch.logprobs == sampled
    assert len(stored[0].branches) == 1, "the second turn continues the tokens of the first"
    tokens = [f"token_id:{t}" for start, end in branch.spans for t in branch.tokens[start:end]]
    assert tokens == [t["token"] for choice in choices for t in choice["logprobs"]["content"]]
    assert stored[0].metrics == {"moves": 1.0}
    assert "RULER explanation: fine" in stored[0].output
    assert stored[3].problem.message == "The agent raised ValueError: broke"
    assert script.summary.source == "a test 1.0"


def test_same_key_trains_once(script: Script) -> None:
    groups = script.groups(1)
    first = script.train(groups, key="only-once-1")
    assert script.train(groups, key="only-once-1") == first
    assert script.train(script.groups(1)).step == first.step + 1
    assert script.summary.step == first.step + 1


def test_identical_siblings_keep_their_own_tokens(script: Script) -> None:
    first = script.play("task", temperature=0.0)
    again = script.play("task", temperature=0.0)
    assert [one.get("message") for one in first] == [one.get("message") for one in again]
    group = SentGroup(
        trajectories=[
            SentAttempt(messages_and_choices=one, reward=float(n), metadata={})
            for n, one in enumerate([first, again])
        ]
    )
    with pytest.raises(Refused, match="temperature 0 and top_p 1"):
        script.train([group])
    log = LogOutside(
        split="validation",
        name="val",
        step=0,
        groups=[group],
        values={"val/x": 2.5},
        key="logged-1",
    )
    run = script.found.run.id
    for _ in range(2):  # repeated, as after a lost response
        script.engine.call(lambda client: client.log_outside(run, log))
    stored = read_trajectories(script, split="validation")
    assert [one.reward for one in stored] == [0.0, 1.0]
    assert all(one.branches for one in stored)
    logged = _events(script, "metrics.logged")
    assert [(one.split, one.values) for one in logged] == [("val", {"val/x": 2.5})]
    assert script.summary.baseline is not None


def test_trajectories_sampled_elsewhere_are_rejected(script: Script) -> None:
    strange = {"finish_reason": "stop", "message": {"role": "assistant", "content": "I am GPT"}}
    group = script.groups(1)[0]
    wrong = SentAttempt(messages_and_choices=[strange], reward=1.0)
    mixed = group.model_copy(update={"trajectories": [*group.trajectories, wrong]})
    with pytest.raises(
        Refused, match="not sampled by Atelier, or is no longer stored: 'I am GPT'"
    ) as refused:
        script.train([mixed])
    assert refused.value.problem.where == "group 0, trajectory 3"
    before = script.summary.step
    assert read_trajectories(script, split="train", step=before + 1) == []
    assert script.train([group]).step == before + 1


def test_choice_without_id_is_found_by_its_content(script: Script) -> None:
    groups = script.groups(1)
    for trajectory in groups[0].trajectories:
        for one in trajectory.messages_and_choices:
            one.pop(CHOICE_ID, None)
    done = script.train(groups)
    assert all(one.branches for one in read_trajectories(script, split="train", step=done.step)[:3])


def test_trajectory_with_several_histories_trains_each_reply_once(script: Script) -> None:
    # different from other tests: equal texts may have different tokens
    main = script.play("main history")
    other = script.play("another history")
    trajectory = SentAttempt(
        messages_and_choices=main,
        additional_histories=[SentHistory(messages_and_choices=one) for one in (other, main)],
        reward=1.0,
    )
    lone = SentAttempt(messages_and_choices=script.play("lone history"), reward=0.0)
    done = script.train([SentGroup(trajectories=[trajectory, lone])])
    first = read_trajectories(script, split="train", step=done.step)[0]
    assert len(first.branches) == 2
    assert first.turns == 4


def test_only_the_newest_policy_can_be_sampled(script: Script) -> None:
    now = f"{script.name}@{script.summary.step}"
    assert script.post([{"role": "user", "content": "x"}], model=now).is_success
    done = script.train(script.groups(1))
    late = script.post([{"role": "user", "content": "x"}], model=now)
    assert late.status_code == 400
    assert f"samples {script.name}@{done.step} now" in late.json()["error"]["message"]
    other = script.post([{"role": "user", "content": "x"}], model="gpt-5")
    assert f"This API key belongs to {script.name}, not to gpt-5" in other.text


def test_stream_contains_token_ids_and_logprobs(script: Script) -> None:
    answer = script.post([{"role": "user", "content": "x"}], stream=True)
    assert answer.text.count('"token": "token_id:') > 0


def test_responses_api_is_rejected_for_external_scripts(script: Script) -> None:
    answer = httpx.post(
        f"http://127.0.0.1:{script.engine.port}/v1/responses",
        json={"model": script.name, "input": "x"},
        headers={"Authorization": f"Bearer {script.key}"},
        verify=False,
    )
    assert answer.status_code == 400
    assert "cannot be used for training" in answer.text


def test_step_without_signal_is_skipped_and_counted(script: Script) -> None:
    groups = [
        SentGroup(trajectories=[_with_reward(one, 1.0) for one in script.groups(1)[0].trajectories])
    ]
    done = script.train(groups)
    assert done.skipped
    assert script.train(script.groups(1)).step == done.step + 1


def test_non_finite_metrics_are_skipped_and_logged(script: Script) -> None:
    group = script.groups(1)[0]
    body = TrainGroups(
        groups=[group], lr=1e-3, algorithm=Algorithm(preset="art"), key=secrets.token_hex(8)
    ).model_dump(mode="json")
    body["groups"][0]["trajectories"][0]["metrics"] |= {"x": float("inf"), "y": float("nan")}
    answer = httpx.post(
        f"http://127.0.0.1:{script.engine.port}/runs/{script.found.run.id}/outside/train",
        content=json.dumps(body),
        headers={"Authorization": f"Bearer {script.engine.token}"},
        timeout=60,
        verify=False,
    )
    assert answer.status_code == 200, answer.text
    messages = [one.text for one in _events(script, "log.written") if one.source == "script"]
    step = answer.json()["step"]
    assert messages[-1] == f"Step {step}: 2 metrics skipped (infinite or NaN)."


def test_second_script_and_other_base_model_are_rejected(
    script: Script, tiny_model: Path, tmp_path: Path
) -> None:
    other = Script(script.engine, tiny_model, script.name)
    with pytest.raises(Refused, match=f"Another script is already training {script.name}"):
        other.open(pid=os.getppid())
    with pytest.raises(Refused, match="is training on this machine"):
        Script(script.engine, tiny_model, "agent-xyz").open()
    with pytest.raises(Refused, match="There is no model called gpt-9"):
        Script(script.engine, tiny_model, script.name).open(base_model="gpt-9", project="other")
    with pytest.raises(
        Refused, match=r"was started with the base model .*, not smollm2-135m-instruct"
    ):
        other.open(base_model="smollm2-135m-instruct")


def test_project_with_agent_and_external_project_are_separate(
    module_engine: Engine, home: Path, tiny_model: Path, script: Script
) -> None:
    make_project(home / "mine", tiny_model)
    with pytest.raises(Refused, match="The project mine has its own agent"):
        Script(module_engine, tiny_model).open(project="mine")
    view = module_engine.call(lambda client: client.project(str(home / "2048")))
    assert (view.problems, view.splits) == ([], [])
    script.close()
    with pytest.raises(Refused, match="An external script makes the rollouts"):
        module_engine.call(lambda client: client.start_run(StartRun(project=str(home / "2048"))))


@pytest.mark.usefixtures("no_open_run")
def test_stopped_external_run_resumes_only_on_new_start(
    module_engine: Engine, tiny_model: Path
) -> None:
    script = Script(module_engine, tiny_model, "agent-stopped")
    run = script.open().run
    script.train(script.groups(1))
    module_engine.call(lambda c: c.command(run.id, Command(action="stop_after_step")))
    until(lambda: script.summary.state == "stopped")
    with pytest.raises(Refused, match="is not active"):
        script.train([SentGroup()])
    with pytest.raises(Refused, match="agent-stopped is trained by a script"):
        module_engine.call(lambda c: c.command(run.id, Command(action="resume")))
    with pytest.raises(Refused, match="was stopped by hand at step 1"):
        script.open(again=True)
    assert script.open().step == 1
    assert script.close().state == "finished"


@pytest.mark.usefixtures("no_open_run")
def test_run_stops_when_its_script_has_ended(module_engine: Engine, tiny_model: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        script = Script(module_engine, tiny_model, "agent-gone")
        script.open(pid=process.pid)
        process.kill()
    until(lambda: script.summary.state == "stopped")
    assert _events(script, "run.stopped")[-1].reason == "The script has ended."


@pytest.mark.usefixtures("no_open_run")
def test_killed_engine_keeps_sampled_choices_and_finished_steps(
    own_engine: Engine, tiny_model: Path
) -> None:
    script = Script(own_engine, tiny_model)
    script.open()
    script.train(script.groups(1), key="first-step")
    first = script.play("task 0")
    own_engine.process.send_signal(signal.SIGKILL)
    own_engine.process.wait()

    script.engine = start_engine(own_engine.workspace)
    try:
        assert script.open(again=True).step == 1
        assert script.train([SentGroup()], key="first-step").step == 1
        lone = script.play("task 0")
        group = SentGroup(
            trajectories=[
                SentAttempt(messages_and_choices=one, reward=float(n))
                for n, one in enumerate([first, lone])
            ]
        )
        assert script.train([group]).step == 2
        assert len(read_trajectories(script, split="train", step=2)) == 2
        script.close()
    finally:
        stop_engine(script.engine)


@pytest.mark.usefixtures("no_open_run")
def test_submitted_step_is_trained_after_engine_kill(own_engine: Engine, tiny_model: Path) -> None:
    script = Script(own_engine, tiny_model)
    run = script.open().run
    groups = script.groups(3)
    submitted = Path(run.path) / "handed" / "step-000001.json"

    async def submit(client: EngineClient) -> None:
        body = TrainGroups(
            groups=groups, lr=1e-3, algorithm=Algorithm(preset="art"), key="cut-off-1"
        )
        task = asyncio.create_task(client.train_outside(run.id, body))
        await asyncio.to_thread(until, submitted.exists)
        own_engine.process.send_signal(signal.SIGKILL)
        await asyncio.gather(task, return_exceptions=True)

    own_engine.call(submit)
    own_engine.process.wait()
    script.engine = start_engine(own_engine.workspace)
    try:
        assert script.open(again=True).step == 1
        assert script.train([SentGroup()], key="cut-off-1").step == 1
        assert len(read_trajectories(script, split="train")) == 12
        script.close()
    finally:
        stop_engine(script.engine)


def _with_reward(attempt: SentAttempt, reward: float) -> SentAttempt:
    return attempt.model_copy(update={"reward": reward})


def _events(script: Script, kind: str) -> list[Any]:
    from engine.storage.run_db.reader import RunReader

    reader = RunReader(Path(script.found.run.path) / "run.db")
    try:
        return reader.events_of(kind)
    finally:
        reader.close()

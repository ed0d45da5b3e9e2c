"""A script that makes its attempts itself: over plain HTTP, as any library could."""

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
def held(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine over the workspace of the module."""
    engine = start_engine(home)
    yield engine
    stop_engine(engine)


@pytest.fixture(scope="module")
def script(held: Engine, tiny_model: Path) -> Iterator[Script]:
    """A run that the tests of this module share and extend; `free` closes it."""
    script = Script(held, tiny_model)
    script.open()
    SHARED.append(script)
    yield script
    SHARED.clear()
    script.close()


@pytest.fixture
def free() -> None:
    """The machine trains nothing, whichever tests of this module this worker has run before."""
    for script in SHARED:
        script.close()


def read(script: Script, **query: Any) -> list[Any]:
    run = script.found.run.id

    async def all_of(client: EngineClient) -> list[Any]:
        page = await client.trajectories(run, TrajectoryQuery(sort="step", **query))
        return [await client.trajectory(run, one.id) for one in page.items]

    return sorted(script.engine.call(all_of), key=lambda one: one.id)


def test_a_step_of_handed_in_groups_is_one_of_ours(script: Script) -> None:
    groups = script.groups()
    done = script.train(groups)

    assert not done.skipped
    assert done.metrics["reward/mean"] == 1.0
    assert done.metrics["unscored"] == 2.0
    assert done.metrics["logprob_gap/max"] < 1e-4
    assert Path(done.checkpoint).is_dir()
    stored = read(script, split="train", step=done.step)
    assert [one.reward for one in stored] == [0.0, 1.0, 2.0, None] * 2
    choices = [one for one in groups[0].trajectories[0].messages_and_choices if CHOICE_ID in one]
    sampled = [t["logprob"] for choice in choices for t in choice["logprobs"]["content"]]
    branch = stored[0].branches[0]
    assert branch.logprobs == sampled
    assert len(stored[0].branches) == 1, "the second turn goes on in the tokens of the first"
    tokens = [f"token_id:{t}" for start, end in branch.spans for t in branch.tokens[start:end]]
    assert tokens == [t["token"] for choice in choices for t in choice["logprobs"]["content"]]
    assert stored[0].metrics == {"moves": 1.0}
    assert "RULER explanation: fine" in stored[0].output
    assert stored[3].problem.message == "The agent raised ValueError: broke"
    assert script.summary.source == "a test 1.0"


def test_the_same_key_trains_once_and_another_step_goes_on(script: Script) -> None:
    groups = script.groups(1)
    first = script.train(groups, key="only-once-1")
    assert script.train(groups, key="only-once-1") == first
    assert script.train(script.groups(1)).step == first.step + 1
    assert script.summary.step == first.step + 1


def test_siblings_that_say_the_same_keep_their_own_tokens(script: Script) -> None:
    told = script.play("task", temperature=0.0)
    again = script.play("task", temperature=0.0)
    assert [one.get("message") for one in told] == [one.get("message") for one in again]
    group = SentGroup(
        trajectories=[
            SentAttempt(messages_and_choices=one, reward=float(n), metadata={})
            for n, one in enumerate([told, again])
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
    for _ in range(2):  # as after an answer that was lost
        script.engine.call(lambda client: client.log_outside(run, log))
    stored = read(script, split="validation")
    assert [one.reward for one in stored] == [0.0, 1.0]
    assert all(one.branches for one in stored)
    logged = _events(script, "metrics.logged")
    assert [(one.split, one.values) for one in logged] == [("val", {"val/x": 2.5})]
    assert script.summary.baseline is not None


def test_what_was_not_sampled_here_is_refused_and_nothing_is_kept(script: Script) -> None:
    strange = {"finish_reason": "stop", "message": {"role": "assistant", "content": "I am GPT"}}
    group = script.groups(1)[0]
    wrong = SentAttempt(messages_and_choices=[strange], reward=1.0)
    mixed = group.model_copy(update={"trajectories": [*group.trajectories, wrong]})
    with pytest.raises(
        Refused, match="not sampled by Atelier, or was deleted: 'I am GPT'"
    ) as refused:
        script.train([mixed])
    assert refused.value.problem.where == "group 0, trajectory 3"
    before = script.summary.step
    assert read(script, split="train", step=before + 1) == []
    assert script.train([group]).step == before + 1


def test_a_choice_that_lost_its_name_is_known_by_what_was_sampled(script: Script) -> None:
    groups = script.groups(1)
    for attempt in groups[0].trajectories:
        for one in attempt.messages_and_choices:
            one.pop(CHOICE_ID, None)
    done = script.train(groups)
    assert all(one.branches for one in read(script, split="train", step=done.step)[:3])


def test_an_attempt_with_several_histories_learns_each_answer_once(script: Script) -> None:
    main = script.play("main history")  # no other test's: equal texts may be unequal tokens
    other = script.play("another history")
    attempt = SentAttempt(
        messages_and_choices=main,
        additional_histories=[SentHistory(messages_and_choices=one) for one in (other, main)],
        reward=1.0,
    )
    lone = SentAttempt(messages_and_choices=script.play("lone history"), reward=0.0)
    done = script.train([SentGroup(trajectories=[attempt, lone])])
    first = read(script, split="train", step=done.step)[0]
    assert len(first.branches) == 2
    assert first.turns == 4


def test_only_the_newest_policy_is_sampled_and_others_are_refused(script: Script) -> None:
    now = f"{script.name}@{script.summary.step}"
    assert script.post([{"role": "user", "content": "x"}], model=now).is_success
    done = script.train(script.groups(1))
    late = script.post([{"role": "user", "content": "x"}], model=now)
    assert late.status_code == 400
    assert f"samples {script.name}@{done.step} now" in late.json()["error"]["message"]
    other = script.post([{"role": "user", "content": "x"}], model="gpt-5")
    assert f"This key belongs to {script.name}, not to gpt-5" in other.text


def test_a_stream_carries_the_log_probs_that_name_it(script: Script) -> None:
    answer = script.post([{"role": "user", "content": "x"}], stream=True)
    assert answer.text.count('"token": "token_id:') > 0


def test_what_cannot_be_handed_in_is_not_sampled(script: Script) -> None:
    answer = httpx.post(
        f"http://127.0.0.1:{script.engine.port}/v1/responses",
        json={"model": script.name, "input": "x"},
        headers={"Authorization": f"Bearer {script.key}"},
        verify=False,
    )
    assert answer.status_code == 400
    assert "cannot be used for training" in answer.text


def test_steps_alike_teach_nothing_and_count(script: Script) -> None:
    groups = [SentGroup(trajectories=[_with(one, 1.0) for one in script.groups(1)[0].trajectories])]
    done = script.train(groups)
    assert done.skipped
    assert script.train(script.groups(1)).step == done.step + 1


def test_what_no_store_can_hold_is_left_out_and_said(script: Script) -> None:
    group = script.groups(1)[0]
    asked = TrainGroups(
        groups=[group], lr=1e-3, algorithm=Algorithm(preset="art"), key=secrets.token_hex(8)
    ).model_dump(mode="json")
    asked["groups"][0]["trajectories"][0]["metrics"] |= {"x": float("inf"), "y": float("nan")}
    answer = httpx.post(
        f"http://127.0.0.1:{script.engine.port}/runs/{script.found.run.id}/outside/train",
        content=json.dumps(asked),
        headers={"Authorization": f"Bearer {script.engine.token}"},
        timeout=60,
        verify=False,
    )
    assert answer.status_code == 200, answer.text
    said = [one.text for one in _events(script, "log.written") if one.source == "script"]
    step = answer.json()["step"]
    assert said[-1] == f"2 metrics of step {step} skipped: not finite."


def test_a_second_script_waits_and_another_base_is_refused(
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
        Refused, match=r"was started with .*, but smollm2-135m-instruct is requested"
    ):
        other.open(base_model="smollm2-135m-instruct")


def test_a_project_with_an_agent_keeps_its_name_and_a_script_has_no_agent(
    held: Engine, home: Path, tiny_model: Path, script: Script
) -> None:
    make_project(home / "mine", tiny_model)
    with pytest.raises(Refused, match="mine is a project with its own agent"):
        Script(held, tiny_model).open(project="mine")
    view = held.call(lambda client: client.project(str(home / "2048")))
    assert (view.problems, view.splits) == ([], [])
    script.close()
    with pytest.raises(Refused, match="An external script makes the rollouts"):
        held.call(lambda client: client.start_run(StartRun(project=str(home / "2048"))))


@pytest.mark.usefixtures("free")
def test_a_person_stops_it_and_only_a_new_start_goes_on(held: Engine, tiny_model: Path) -> None:
    script = Script(held, tiny_model, "agent-stopped")
    run = script.open().run
    script.train(script.groups(1))
    held.call(lambda c: c.command(run.id, Command(action="stop_after_step")))
    until(lambda: script.summary.state == "stopped")
    with pytest.raises(Refused, match="is not active"):
        script.train([SentGroup()])
    with pytest.raises(Refused, match="A script trains agent-stopped"):
        held.call(lambda c: c.command(run.id, Command(action="resume")))
    with pytest.raises(Refused, match="was stopped by hand at step 1"):
        script.open(again=True)
    assert script.open().step == 1
    assert script.close().state == "finished"


@pytest.mark.usefixtures("free")
def test_the_run_stops_when_its_script_is_gone(held: Engine, tiny_model: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        script = Script(held, tiny_model, "agent-gone")
        script.open(pid=process.pid)
        process.kill()
    until(lambda: script.summary.state == "stopped")
    assert _events(script, "run.stopped")[-1].reason == "The script has ended."


@pytest.mark.usefixtures("free")
def test_a_killed_engine_forgets_nothing_that_it_answered(
    own_engine: Engine, tiny_model: Path
) -> None:
    script = Script(own_engine, tiny_model)
    script.open()
    script.train(script.groups(1), key="first-step")
    told = script.play("task 0")
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
                for n, one in enumerate([told, lone])
            ]
        )
        assert script.train([group]).step == 2
        assert len(read(script, split="train", step=2)) == 2
        script.close()
    finally:
        stop_engine(script.engine)


@pytest.mark.usefixtures("free")
def test_a_step_that_was_handed_in_is_trained_after_a_kill(
    own_engine: Engine, tiny_model: Path
) -> None:
    script = Script(own_engine, tiny_model)
    run = script.open().run
    groups = script.groups(3)
    handed = Path(run.path) / "handed" / "step-000001.json"

    async def hand_in(client: EngineClient) -> None:
        asked = TrainGroups(
            groups=groups, lr=1e-3, algorithm=Algorithm(preset="art"), key="cut-off-1"
        )
        task = asyncio.create_task(client.train_outside(run.id, asked))
        await asyncio.to_thread(until, handed.exists)
        own_engine.process.send_signal(signal.SIGKILL)
        await asyncio.gather(task, return_exceptions=True)

    own_engine.call(hand_in)
    own_engine.process.wait()
    script.engine = start_engine(own_engine.workspace)
    try:
        assert script.open(again=True).step == 1
        assert script.train([SentGroup()], key="cut-off-1").step == 1
        assert len(read(script, split="train")) == 12
        script.close()
    finally:
        stop_engine(script.engine)


def _with(attempt: SentAttempt, reward: float) -> SentAttempt:
    return attempt.model_copy(update={"reward": reward})


def _events(script: Script, kind: str) -> list[Any]:
    from engine.storage.run_db.reader import RunReader

    reader = RunReader(Path(script.found.run.path) / "run.db")
    try:
        return reader.events_of(kind)
    finally:
        reader.close()

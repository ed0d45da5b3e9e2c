"""vLLM policy over a real server through updates, a stale adapter, a kill and a hang: log-probs
equal the trainer's, every token arrives, and no process is left."""

import asyncio
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.policy.base import (
    AdamStep,
    SampledToken,
    SampleRequest,
    ScoreBatch,
    TrainBatch,
    TrainItem,
)
from engine.policy.vllm.policy import VllmPolicy
from engine.protocol.problems import PolicyError, RolloutError
from engine.runtime.child import ChildDied
from tests.engine.policy.torch.grammars import json_schema, regex
from tests.engine.policy.vllm.conftest import VllmHarness

pytestmark = pytest.mark.long
PROMPT = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
FAULTS = [signal.SIGSTOP, signal.SIGKILL]
TOLERANCE = 1e-4
"""Maximum log-prob difference in nats for float32 on the CPU."""


async def complete(policy: VllmPolicy, **fields: Any) -> list[SampledToken]:
    request = SampleRequest(**{"tokens": PROMPT, "max_tokens": 40, "seed": 3} | fields)
    return [token async for tokens in policy.sample(request) for token in tokens]


async def completions(policy: VllmPolicy, count: int, **fields: Any) -> list[list[SampledToken]]:
    return list(
        await asyncio.gather(*(complete(policy, seed=seed, **fields) for seed in range(count)))
    )


def ids(completed: list[SampledToken]) -> list[int]:
    return [token.token for token in completed]


async def gap(
    policy: VllmPolicy, completed: list[list[SampledToken]], temperature: float = 1
) -> float:
    """Largest |Δ log-prob| between the sampler's tokens and the trainer's score."""
    items = [item_of(tokens) for tokens in completed]
    scores = await policy.score(ScoreBatch(items=items, temperature=temperature))
    pairs = zip(completed, scores, strict=True)
    return max(
        abs(token.logprob - own)
        for tokens, score in pairs
        for token, own in zip(tokens, score.logprobs, strict=True)
    )


def item_of(completed: list[SampledToken], advantage: float = 0.0) -> TrainItem:
    tokens = [token.token for token in completed]
    return TrainItem(
        tokens=PROMPT + tokens,
        spans=[(len(PROMPT), len(PROMPT) + len(tokens))],
        logprobs=[token.logprob for token in completed],
        advantages=[advantage] * len(tokens),
    )


async def update(
    policy: VllmPolicy, completed: list[list[SampledToken]], version: int
) -> dict[str, float]:
    items = [item_of(tokens, (-1.0) ** n) for n, tokens in enumerate(completed)]
    total = sum(len(tokens) for tokens in completed)
    await policy.forward_backward(TrainBatch(items=items, normaliser=total))
    await policy.optim_step(AdamStep(lr=1e-3))
    return await policy.publish(version)


def test_vllm_sampler_and_trainer_agree_through_updates(harness: VllmHarness) -> None:
    async def work() -> None:
        policy = harness.policy
        gaps = []
        for version in range(1, 4):
            completed = await completions(policy, 8)
            gaps.append(await gap(policy, completed))
            metrics = await update(policy, completed, version)
            assert metrics["publish_gap"] <= TOLERANCE
            assert metrics["publish_moved"] > 10 * metrics["publish_gap"]
            assert policy.version == version
        gaps.append(await gap(policy, await completions(policy, 8, temperature=0.7), 0.7))
        print(f"largest gap after 0, 1, 2, 3 updates: {[f'{g:.1e}' for g in gaps]} nats")
        assert max(gaps) <= TOLERANCE

    harness.run(work())


def test_sampling_parameters_are_respected(harness: VllmHarness) -> None:
    async def work() -> None:
        policy = harness.policy
        eos = harness.info.eos_tokens
        greedy = await complete(policy, temperature=0, max_tokens=200)
        assert greedy[-1].token in eos
        longer = await complete(policy, temperature=0, max_tokens=len(greedy) + 9, ignore_eos=True)
        assert len(longer) == len(greedy) + 9
        stop = greedy[2].token
        cut = await complete(policy, temperature=0, stop_tokens=[stop])
        assert ids(cut) == ids(greedy)[: len(cut)]
        assert cut[-1].token == stop
        best = await complete(policy, temperature=0, max_tokens=3, top_logprobs=4)
        assert all(len(token.top) == 4 for token in best)
        assert all(token.top[0] == (token.token, token.logprob) for token in best)
        first, second = await completions(policy, 2)
        assert first != second
        assert ids(first) == ids(await complete(policy, seed=0))
        assert ids(greedy) == ids(await complete(policy, temperature=0, max_tokens=200, top_p=0.9))
        with pytest.raises(PolicyError, match="context length"):
            await complete(policy, tokens=[5] * 300)

    harness.run(work())


def test_stale_adapter_raises_policy_error(
    harness: VllmHarness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The server is pointed to a folder with the weights of the previous update."""
    policy = harness.policy
    save = policy._trainer.save_adapter
    old = tmp_path / "old"

    async def stale(folder: Path) -> None:
        await asyncio.to_thread(shutil.copytree, old, folder)

    async def work() -> None:
        await save(old)
        completed, before = await completions(policy, 8), policy._served.current
        monkeypatch.setattr(policy._trainer, "save_adapter", stale)
        with pytest.raises(
            PolicyError, match="did not load the new adapter: its log-probs show 0%"
        ):
            await update(policy, completed, 99)
        assert policy._served.current == before
        monkeypatch.setattr(policy._trainer, "save_adapter", save)
        policy._trainer_logprobs = []
        await policy.publish(4)
        assert await gap(policy, await completions(policy, 4)) <= TOLERANCE

    harness.run(work())


def test_held_server_pauses_and_resumes_sampling(harness: VllmHarness) -> None:
    async def work() -> None:
        policy, held_before = harness.policy, harness.policy.away_s
        sampling = asyncio.gather(
            *(complete(policy, seed=n, max_tokens=100, ignore_eos=True) for n in range(8))
        )
        await asyncio.sleep(1.0)
        await policy.hold()
        done, _ = await asyncio.wait({sampling}, timeout=4.0)
        assert not done, "sampling should be paused"
        await policy.go_on()
        completed = await sampling
        assert [len(tokens) for tokens in completed] == [100] * 8
        assert policy.away_s - held_before >= 4.0
        assert await gap(policy, completed) <= TOLERANCE

    harness.run(work())


@pytest.mark.parametrize("number", FAULTS)
def test_server_death_or_hang_loses_no_token(harness: VllmHarness, number: signal.Signals) -> None:
    """A server process is killed or stopped while sixteen completions run. A kill during a whole
    run is tested elsewhere (engine_http/test_backend.py)."""

    async def work() -> None:
        policy, restart_count = harness.policy, len(harness.restarts)
        before, held_before = policy.pids, harness.policy.away_s
        sampling = asyncio.gather(
            *(complete(policy, seed=n, max_tokens=120, ignore_eos=True) for n in range(16))
        )
        await asyncio.sleep(2.0)
        candidates = [p for p in map(psutil.Process, policy._sampler.pids) if _computes(p)]  # type: ignore[union-attr]
        victim = random.Random(number).choice(candidates)
        victim.send_signal(number)
        fault_time = time.monotonic()
        while len(harness.restarts) == restart_count:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        noticed_s = time.monotonic() - fault_time
        completed = await sampling
        recovered_s = time.monotonic() - fault_time
        print(f"{number.name}: noticed after {noticed_s:.1f} s, whole after {recovered_s:.0f} s")
        assert policy.away_s - held_before >= noticed_s - 1
        assert noticed_s < 30
        assert [len(tokens) for tokens in completed] == [120] * 16
        assert await gap(policy, completed) <= TOLERANCE
        ended_pids = set(before) - {*policy.pids}
        assert len(ended_pids) >= 3
        assert not any(psutil.pid_exists(pid) for pid in ended_pids)

    harness.run(work())


def _computes(process: psutil.Process) -> bool:
    """Whether `process` is running and is not Python's resource tracker."""
    return bool(command := _command_line(process)) and "resource_tracker" not in command


def _command_line(process: psutil.Process) -> str:
    """Command line; empty for a process that has ended."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


def test_grammars_constrain_and_are_trained_as_they_were_sampled(harness: VllmHarness) -> None:
    schema = {"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}}
    grammars = [regex("(yes|no|maybe)!{0,3}"), json_schema(schema | {"required": ["answer"]}), None]

    async def work() -> None:
        policy, restart_count = harness.policy, len(harness.restarts)
        for temperature in (1.0, 1.5):
            requests = [(g, seed) for seed in range(4) for g in grammars]
            completed = await asyncio.gather(
                *(
                    complete(policy, grammar=g, seed=seed, temperature=temperature)
                    for g, seed in requests
                )
            )
            items = [
                item_of(tokens).model_copy(update={"grammars": [(0, g)] if g else []})
                for (g, _), tokens in zip(requests, completed, strict=True)
            ]
            scores = await policy.score(ScoreBatch(items=items, temperature=temperature))
            gaps = [
                abs(own - theirs)
                for item, score in zip(items, scores, strict=True)
                for own, theirs in zip(score.logprobs, item.logprobs, strict=True)
            ]
            print(f"largest gap at temperature {temperature}: {max(gaps):.1e} nats")
            assert max(gaps) <= TOLERANCE
            for (g, _), tokens in zip(requests, completed, strict=True):
                if g:
                    assert tokens[-1].token in harness.info.eos_tokens
        with pytest.raises(RolloutError, match="cannot be compiled"):
            await complete(policy, grammar=regex("(["))
        assert len(harness.restarts) == restart_count
        greedy = await complete(policy, grammar=grammars[0], temperature=0, top_logprobs=4)
        assert greedy[0].top[0][1] == greedy[0].logprob

    harness.run(work())


def test_server_that_dies_in_a_constrained_completion_ends_it(harness: VllmHarness) -> None:
    grammar = regex("(one|two|three|four){60}")

    async def work() -> None:
        policy = harness.policy
        request = SampleRequest(tokens=PROMPT, max_tokens=200, seed=5, grammar=grammar)
        stream = policy.sample(request)
        await anext(stream)
        for pid in policy._served.pids:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(RolloutError, match="cannot continue in the middle"):
            async for _ in stream:
                pass
        assert await complete(policy, grammar=regex("ab"))

    harness.run(work())


def test_close_ends_requests_that_wait_for_a_server(harness: VllmHarness) -> None:
    """Last test of this server: it is killed, and the policy closed while another starts."""

    async def work() -> None:
        policy = harness.policy
        sampler = policy._served
        sampler._restarts = 0  # tests of this server have used them up
        sampling = [
            asyncio.create_task(complete(policy, seed=n, max_tokens=150, ignore_eos=True))
            for n in range(4)
        ]
        await asyncio.sleep(1.5)
        restart_count = len(harness.restarts)
        for pid in sampler.pids:
            if _computes(psutil.Process(pid)):
                psutil.Process(pid).kill()
        while len(harness.restarts) == restart_count:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await asyncio.sleep(2.0)
        starting = psutil.Process().children(recursive=True)
        start = time.monotonic()
        await sampler.close()
        ends = await asyncio.gather(*sampling, return_exceptions=True)
        assert [type(end) for end in ends] == [ChildDied] * 4, ends
        assert time.monotonic() - start < 10
        assert not [words for p in starting if "vllm" in (words := _command_line(p))]

    harness.run(work())

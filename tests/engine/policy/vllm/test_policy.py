"""A real server through updates, a stale adapter, a kill and a hang: the same log-probs as the
trainer's, every token of every completion, and nothing left behind."""

import asyncio
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
from engine.protocol.problems import PolicyError
from engine.runtime.child import ChildDied
from tests.engine.policy.vllm.conftest import Served

pytestmark = pytest.mark.long
PROMPT = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
FAULTS = [signal.SIGSTOP, signal.SIGKILL]
TOLERANCE = 1e-4
"""Nats: what the promise allows in float32 on the processor."""


async def complete(policy: VllmPolicy, **fields: Any) -> list[SampledToken]:
    request = SampleRequest(**{"tokens": PROMPT, "max_tokens": 40, "seed": 3} | fields)
    return [token async for tokens in policy.sample(request) for token in tokens]


async def completions(policy: VllmPolicy, count: int, **fields: Any) -> list[list[SampledToken]]:
    return list(
        await asyncio.gather(*(complete(policy, seed=seed, **fields) for seed in range(count)))
    )


def ids(said: list[SampledToken]) -> list[int]:
    return [token.token for token in said]


async def gap(policy: VllmPolicy, said: list[list[SampledToken]], temperature: float = 1) -> float:
    """Largest |Δ log-prob| between what the sampler said and the trainer's own score."""
    items = [item_of(tokens) for tokens in said]
    scores = await policy.score(ScoreBatch(items=items, temperature=temperature))
    pairs = zip(said, scores, strict=True)
    return max(
        abs(token.logprob - own)
        for tokens, score in pairs
        for token, own in zip(tokens, score.logprobs, strict=True)
    )


def item_of(said: list[SampledToken], advantage: float = 0.0) -> TrainItem:
    tokens = [token.token for token in said]
    return TrainItem(
        tokens=PROMPT + tokens,
        spans=[(len(PROMPT), len(PROMPT) + len(tokens))],
        logprobs=[token.logprob for token in said],
        advantages=[advantage] * len(tokens),
    )


async def update(
    policy: VllmPolicy, said: list[list[SampledToken]], version: int
) -> dict[str, float]:
    items = [item_of(tokens, (-1.0) ** n) for n, tokens in enumerate(said)]
    total = sum(len(tokens) for tokens in said)
    await policy.forward_backward(TrainBatch(items=items, normaliser=total))
    await policy.optim_step(AdamStep(lr=1e-3))
    return await policy.publish(version)


def test_sampler_and_trainer_agree_through_updates(served: Served) -> None:
    async def work() -> None:
        policy = served.policy
        worst = []
        for version in range(1, 4):
            said = await completions(policy, 8)
            worst.append(await gap(policy, said))
            metrics = await update(policy, said, version)
            assert metrics["publish_gap"] <= TOLERANCE
            assert metrics["publish_moved"] > 10 * metrics["publish_gap"]
            assert policy.version == version
        worst.append(await gap(policy, await completions(policy, 8, temperature=0.7), 0.7))
        print(f"largest gap after 0, 1, 2, 3 updates: {[f'{g:.1e}' for g in worst]} nats")
        assert max(worst) <= TOLERANCE

    served.run(work())


def test_requests_are_kept_to_the_letter(served: Served) -> None:
    async def work() -> None:
        policy = served.policy
        eos = served.info.eos_tokens
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
        one, other = await completions(policy, 2)
        assert one != other
        assert ids(one) == ids(await complete(policy, seed=0))
        assert ids(greedy) == ids(await complete(policy, temperature=0, max_tokens=200, top_p=0.9))
        with pytest.raises(PolicyError, match="context length"):
            await complete(policy, tokens=[5] * 300)

    served.run(work())


def test_an_adapter_that_the_server_did_not_take_is_an_error(
    served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The folder that the server is pointed to holds the weights of the update before."""
    policy, begun = served.policy, time.monotonic()
    save = policy._trainer.save_adapter
    old = tmp_path / "old"

    async def stale(folder: Path) -> None:
        await asyncio.to_thread(shutil.copytree, old, folder)

    async def work() -> None:
        await save(old)
        said, before = await completions(policy, 8), policy._served.current
        monkeypatch.setattr(policy._trainer, "save_adapter", stale)
        with pytest.raises(
            PolicyError, match="did not load the new adapter: its log-probs show 0%"
        ):
            await update(policy, said, 99)
        assert policy._served.current == before
        monkeypatch.setattr(policy._trainer, "save_adapter", save)
        policy._trainer_logprobs = []
        await policy.publish(4)
        assert await gap(policy, await completions(policy, 4)) <= TOLERANCE

    served.run(work())
    assert time.monotonic() - begun < 30


def test_what_is_held_stands_still_and_goes_on(served: Served) -> None:
    async def work() -> None:
        policy, away = served.policy, served.policy.away_s
        sampling = asyncio.gather(
            *(complete(policy, seed=n, max_tokens=100, ignore_eos=True) for n in range(8))
        )
        await asyncio.sleep(1.0)
        await policy.hold()
        done, _ = await asyncio.wait({sampling}, timeout=4.0)
        assert not done, "it was held"
        await policy.go_on()
        said = await sampling
        assert [len(tokens) for tokens in said] == [100] * 8
        assert policy.away_s - away >= 4.0
        assert await gap(policy, said) <= TOLERANCE

    served.run(work())


@pytest.mark.parametrize("number", FAULTS)
def test_a_server_that_dies_or_hangs_costs_no_token(served: Served, number: signal.Signals) -> None:
    """One of its processes is killed or stopped while sixteen completions are under way. That it
    is killed, a whole run goes through elsewhere (engine_http/test_backend.py)."""

    async def work() -> None:
        policy, known = served.policy, len(served.restarts)
        before, away = policy.pids, served.policy.away_s
        sampling = asyncio.gather(
            *(complete(policy, seed=n, max_tokens=120, ignore_eos=True) for n in range(16))
        )
        await asyncio.sleep(2.0)
        family = [p for p in map(psutil.Process, policy._sampler.pids) if _computes(p)]  # type: ignore[union-attr]
        victim = random.Random(number).choice(family)
        victim.send_signal(number)
        hit = time.monotonic()
        while len(served.restarts) == known:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        heard = time.monotonic() - hit
        said = await sampling
        whole = time.monotonic() - hit
        print(f"{number.name}: noticed after {heard:.1f} s, whole after {whole:.0f} s")
        assert policy.away_s - away >= heard - 1
        assert heard < 30
        assert [len(tokens) for tokens in said] == [120] * 16
        assert await gap(policy, said) <= TOLERANCE
        gone = set(before) - {*policy.pids}
        assert len(gone) >= 3
        assert not any(psutil.pid_exists(pid) for pid in gone)

    served.run(work())


def _computes(process: psutil.Process) -> bool:
    """Not Python's own bookkeeper of shared memory, nor one that has ended."""
    return bool(words := _words(process)) and "resource_tracker" not in words


def _words(process: psutil.Process) -> str:
    """The command line; empty for a process that has ended."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


def test_who_waits_for_a_server_hears_that_it_is_closed(served: Served) -> None:
    """The last test of this server: it is killed, and the policy closed while another starts."""

    async def work() -> None:
        policy = served.policy
        sampler = policy._served
        sampling = [
            asyncio.create_task(complete(policy, seed=n, max_tokens=150, ignore_eos=True))
            for n in range(4)
        ]
        await asyncio.sleep(1.5)
        known = len(served.restarts)
        for pid in sampler.pids:
            if _computes(psutil.Process(pid)):
                psutil.Process(pid).kill()
        while len(served.restarts) == known:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await asyncio.sleep(2.0)
        starting = psutil.Process().children(recursive=True)
        begun = time.monotonic()
        await sampler.close()
        ends = await asyncio.gather(*sampling, return_exceptions=True)
        assert [type(end) for end in ends] == [ChildDied] * 4, ends
        assert time.monotonic() - begun < 10
        left = [p for p in starting if "vllm" in _words(p)]
        assert not left

    served.run(work())

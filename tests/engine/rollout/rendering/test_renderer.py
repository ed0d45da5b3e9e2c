"""Hostile templates and tokenizers: each is stopped by a limit with an error; nothing blocks."""

import asyncio
import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.protocol.problems import ModelError, RolloutError
from engine.rollout.rendering.chat import ChatFormat, open_chat

USER = {"role": "user", "content": "Hello"}
ON_ATTACK = "{%% if messages[0].content == 'attack' %%}%s{%% endif %%}ok"
ATTACKS = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "memory": "{% set x = 'a' * 3000000000 %}{{ x|length }}",
    "doubling": "{% set n = namespace(x='aaaaaaaa') %}"
    "{% for a in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x|length }}",
    "lists": "{% set n = namespace(x=[1]) %}"
    "{% for a in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x|length }}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "calls": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}"
    "{{ m(40) }}",
    "output": "{% for a in range(99999) %}{{ 'a' * 10000 }}{% endfor %}",
    "power": "{{ (10 ** (messages|length * 100000000)) % 7 }}",
    "digits": "{{ 10 ** 1000000 }}",
    "sort": "{% for a in range(99999) %}{% set x = range(99999)|sort(reverse=true) %}{% endfor %}",
    "replace": "{{ ('a' * 30000000).replace('a', 'bbbbbbbbbbbbbbbbbbbb')|length }}",
    "escape": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "format": "{{ '%9999999999d' % 1 }}",
}
CODES = {"model.template_overran", "gateway.template_refused", "gateway.context_full"}


def with_template(model: Path, folder: Path, template: str) -> Path:
    shutil.copytree(model, folder)
    (folder / "chat_template.jinja").write_text(template)
    return folder


async def stall_during(work: Any) -> tuple[Any, float]:
    """(result or error of a coroutine, longest stall of the event loop in seconds)."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            start = time.perf_counter()
            await asyncio.sleep(0.005)
            longest = max(longest, time.perf_counter() - start - 0.005)

    watching = asyncio.create_task(watch())
    (result,) = await asyncio.gather(work, return_exceptions=True)
    watching.cancel()
    return result, longest


@pytest.mark.parametrize("name", ATTACKS)
def test_hostile_template_fails_only_its_prompt(
    tiny_model: Path, tmp_path: Path, name: str
) -> None:
    """The renderer still answers the next prompt, and the event loop never stalls."""
    folder = with_template(tiny_model, tmp_path / "hostile", ON_ATTACK % ATTACKS[name])

    async def attack() -> None:
        async with open_chat(folder) as chat:
            prompt = chat.prompt([{"role": "user", "content": "attack"}], [], 500)
            start = time.perf_counter()
            error, longest = await stall_during(prompt)
            seconds = time.perf_counter() - start
            assert isinstance(error, RolloutError), error
            assert error.problem.code in CODES
            print(f"{name}: {seconds:.2f} s, loop stalled {1000 * longest:.0f} ms: {error}")
            assert seconds < 20
            assert longest < 0.5
            assert (await chat.prompt([USER], [], 500)).text == "ok"

    asyncio.run(attack())


def test_always_slow_template_is_rejected_at_start(tiny_model: Path, tmp_path: Path) -> None:
    folder = with_template(tiny_model, tmp_path / "slow", ATTACKS["loops"])

    async def open_slow_chat() -> None:
        async with open_chat(folder):
            raise AssertionError("the chat format should not open")

    with pytest.raises(ModelError, match="template of slow took more than 3 s"):
        asyncio.run(open_slow_chat())
    constant = with_template(tiny_model, tmp_path / "constant", "{{ (10 ** 100000000) % 7 }}")
    with ChatFormat(constant) as chat, pytest.raises(ModelError, match="took more than 3 s"):
        chat.check()


@pytest.mark.parametrize("template", ["{% for %}", "{% if %}" * 2000, "{{ " + "(" * 5000 + "1"])
def test_invalid_template_raises_model_error(
    tiny_model: Path, tmp_path: Path, template: str
) -> None:
    folder = with_template(tiny_model, tmp_path / "broken", template)
    with ChatFormat(folder) as chat, pytest.raises(ModelError, match="cannot be used"):
        chat.check()


def test_backtracking_pattern_does_not_stall_the_event_loop(
    tiny_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "pattern"
    shutil.copytree(tiny_model, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    evil = {"type": "Split", "pattern": {"Regex": r"(?:(?:a+)+)+(?=b)\1|(a*)*c"},
            "behavior": "Isolated", "invert": False}  # fmt: skip
    byte_level = tokenizer["pre_tokenizer"]
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [evil, byte_level]}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))

    async def attack() -> None:
        async with open_chat(folder) as chat:
            prompt = chat.prompt([{"role": "user", "content": "a" * 3000}], [], 100_000)
            result, longest = await stall_during(prompt)
            print(f"{type(result).__name__}, loop stalled {1000 * longest:.0f} ms: {result!s:.100}")
            assert longest < 0.5
            assert (await chat.prompt([USER], [], 500)).tokens

    asyncio.run(attack())


def test_decoder_with_a_pattern_is_rejected(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "decoder"
    shutil.copytree(tiny_model, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["decoder"] = {"type": "Replace", "pattern": {"Regex": "(a+)+b"}, "content": ""}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ModelError, match="regular expression"):
        ChatFormat(folder)


@pytest.fixture
def chat(tiny_model: Path) -> Iterator[ChatFormat]:
    with ChatFormat(tiny_model) as chat:
        yield chat


def test_oversized_prompt_is_rejected_before_tokenization(chat: ChatFormat) -> None:
    long = [{"role": "user", "content": "x" * 1_000_000}]
    with pytest.raises(RolloutError, match=r"1,000,\d+ characters") as raised:
        asyncio.run(chat.prompt(long, [], 200))
    assert raised.value.problem.code == "gateway.context_full"


def test_prompt_is_fast_and_cached_when_repeated(chat: ChatFormat) -> None:
    async def measure() -> tuple[float, float]:
        fresh, repeated = [], []
        for number in range(300):
            messages = [USER, {"role": "assistant", "content": f"Yes {number}"}, USER]
            for times in (fresh, repeated):
                start = time.perf_counter()
                await chat.prompt(messages, [], 2000)
                times.append(time.perf_counter() - start)
        return sorted(fresh)[150], sorted(repeated)[150]

    fresh, repeated = asyncio.run(measure())
    print(f"prompt {1000 * fresh:.3f} ms, the same again {1000 * repeated:.3f} ms")
    assert fresh < 0.02
    assert repeated < fresh


def newest_renderer() -> psutil.Process:
    """Renderer process that was started last; other tests of this worker keep theirs."""
    renderers = []
    for one in psutil.Process().children():
        with contextlib.suppress(psutil.ZombieProcess):  # another one has just exited
            if "engine.rollout.rendering.worker" in one.cmdline():
                renderers.append(one)
    return max(renderers, key=psutil.Process.create_time)


def test_killed_renderer_is_replaced(chat: ChatFormat) -> None:
    text = chat.render([USER], [])
    child = newest_renderer()
    child.kill()
    assert chat.render([USER], []) == text


def test_renderer_has_no_secrets_and_limited_memory(
    chat: ChatFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, "secret")
    chat.check()
    child = newest_renderer()
    assert "secret" not in child.environ().values()
    limits = Path(f"/proc/{child.pid}/limits").read_text()
    assert (
        next(line for line in limits.splitlines() if "address space" in line).split()[3]
        != "unlimited"
    )
    assert os.getpid() == child.ppid()

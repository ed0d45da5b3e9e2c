"""Exports over a real engine: parity check, stored report, served model, cancellation."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from engine.client import EngineClient
from engine.protocol.events.checkpoints import CheckpointExported
from engine.protocol.problems import Refused
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.exports import ExportCheckpoint, ExportReport, ExportTicked
from engine.protocol.requests.runs import Command
from engine.storage.checkpoints.checkpoint import verify
from tests.engine.export.make_run import make_run
from tests.engine_http.conftest import ROOT, Engine, make_project, until
from tests.support.engine_starter import run_command


@pytest.fixture(scope="module")
def trained_run(shared_engine: Engine, home: Path, tiny_model: Path) -> RunSummary:
    """Run of one step; the last test that uses it trains it further."""
    project = make_project(home / "letters", tiny_model)
    run = shared_engine.train(project, **{"train.steps": 1, "train.validate_every": 0})
    shared_engine.wait(run)
    return run


def export_checkpoint(
    engine: Engine, run: RunSummary, request: ExportCheckpoint, step: int | None = None
) -> list[ExportTicked | ExportReport]:
    async def work(client: EngineClient) -> list[ExportTicked | ExportReport]:
        return [one async for one in client.export(run.id, step, request)]

    return engine.call(work)


def test_export_is_verified_stored_and_served(
    engine: Engine, trained_run: RunSummary, tiny_model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    request = ExportCheckpoint(format="merged", out=str(out), prompts=4)
    *ticks, report = export_checkpoint(engine, trained_run, request, step=1)
    assert isinstance(report, ExportReport)
    assert report.parity.verdict == "equal", report.parity.failures
    assert report.step == 1
    assert [one.tool for one in report.commands] == ["Atelier", "vLLM", "Ollama", "llama.cpp"]
    shares = [tick.share for tick in ticks if isinstance(tick, ExportTicked)]
    assert shares == sorted(shares)
    assert {tick.phase for tick in ticks if isinstance(tick, ExportTicked)} >= {
        "checking", "writing", "reference", "weights", "reading_back", "publishing",
    }  # fmt: skip
    assert verify(out)
    assert json.loads((out / "parity.json").read_text()) == report.parity.model_dump(mode="json")
    event = engine.wait_for(trained_run, "checkpoint.exported")
    assert isinstance(event, CheckpointExported)
    assert (event.path, event.verdict, event.bytes) == (str(out), "equal", report.bytes)
    with pytest.raises(Refused, match="exists and is not empty"):
        export_checkpoint(engine, trained_run, request)
    other = request.model_copy(update={"out": str(tmp_path / "other")})
    with pytest.raises(Refused, match="no checkpoint of step 7"):
        export_checkpoint(engine, trained_run, other, step=7)
    for address in serve_model(out):
        check_served_model(address)


def serve_model(folder: Path) -> Iterator[str]:
    """Run `engine serve-model` for a folder; stop it when the loop continues."""
    process = subprocess.Popen(
        [sys.executable, "-m", "engine", "serve-model", str(folder), "--port", "0",
         "--api-key", "sk-mine"],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    with process.stdout as lines:
        assert "in float32 precision, as in the parity check" in lines.readline()
        ready = lines.readline()
        yield ready.split(" at ")[1].split(";")[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def check_served_model(address: str) -> None:
    """Streamed and whole responses are equal, callers are independent, API keys are required."""
    with openai.OpenAI(base_url=address, api_key="sk-mine", max_retries=0) as client:
        (model,) = client.models.list().data
        assert model.id.startswith("letters-")

        def complete(stream: bool) -> str:
            options = {"max_tokens": 6, "temperature": 0, "stream": stream}
            messages = [{"role": "user", "content": "Say 1"}]
            answer = client.chat.completions.create(model=model.id, messages=messages, **options)  # type: ignore[call-overload]
            if not stream:
                return answer.choices[0].message.content  # type: ignore[no-any-return]
            return "".join(part.choices[0].delta.content or "" for part in answer)

        assert complete(stream=False) == complete(stream=True) == complete(stream=False) != ""
    with openai.OpenAI(base_url=address, api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError):
            client.models.list()


def test_client_disconnect_cancels_export_and_run_resumes(
    engine: Engine, trained_run: RunSummary, tmp_path: Path
) -> None:
    out = tmp_path / "made" / "out"
    request = ExportCheckpoint(format="merged", out=str(out))

    async def disconnect(client: EngineClient) -> None:
        async for tick in client.export(trained_run.id, None, request):
            assert isinstance(tick, ExportTicked)
            if tick.phase == "writing":
                return

    async def both(client: EngineClient) -> None:
        job = asyncio.create_task(disconnect(client))
        await asyncio.to_thread(until, lambda: bool(engine.child_processes("engine.export.torch")))
        other = request.model_copy(update={"out": str(tmp_path / "b")})
        with pytest.raises(Refused, match="Another export"):
            _ = [one async for one in client.export(trained_run.id, None, other)]
        await job

    engine.call(both)
    until(lambda: not out.parent.exists())
    until(lambda: not engine.child_processes("engine.export.torch"))
    assert engine.call(lambda client: client.run(trained_run.id)).state == "finished"
    order = Command(action="resume", steps=2)
    resumed = engine.call(lambda client: client.command(trained_run.id, order))
    assert any(event.kind == "run.finished" for event in engine.wait(resumed))
    assert not [p for p in tmp_path.iterdir() if "export" in p.name]


def run_export(*arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {k: v for k, v in os.environ.items() if k != "HF_TOKEN"}
    return run_command("export", *arguments, environment=environment)


def test_export_command_works_without_engine(tiny_model: Path, tmp_path: Path) -> None:
    run = str(make_run(tmp_path / "elsewhere", tiny_model))
    out = str(tmp_path / "out")
    options = ("--format", "adapter", "--out", out)
    for wrong, words in (
        (
            ("--format", "merged", "--dtype", "q8_0", "--out", out),
            "q8_0 is available only for gguf",
        ),
        (("--push", "me/it", *options), "needs a Hub token"),
    ):
        done = run_export(run, *wrong)
        assert done.returncode == 2
        assert words in done.stderr
    done = run_export(f"{run}@3", *options, "--json", "--prompts", "2")
    assert done.returncode == 0, done.stderr
    *_, last = done.stdout.splitlines()
    report = ExportReport.model_validate_json(last)
    assert (report.parity.verdict, report.path) == ("equal", out)
    about = json.loads((Path(out) / "adapter_config.json").read_text())
    assert about["base_model_name_or_path"] == tiny_model.name
    everything = b"".join(p.read_bytes() for p in Path(out).iterdir())
    assert str(tmp_path).encode() not in everything
    assert str(tiny_model.parent).encode() not in everything

"""Model card: contents, and no private information about the machine."""

import asyncio
import getpass
import shutil
import socket
from pathlib import Path

import pytest

from engine.export.model_card import model_card
from engine.export.parity import LIMITS
from engine.export.serving import commands_for
from engine.export.source import read_source
from engine.protocol.config.project import ProjectConfig
from engine.protocol.events.run import EvaluationFinished
from engine.protocol.records.comparison import Comparison, EvaluationResult, Standing
from engine.protocol.records.demonstrations import SupervisedPlan, Tally
from engine.protocol.records.runs import Interval, RunSpec
from engine.protocol.requests.evaluation import Contestant, EvaluationPlan
from engine.protocol.requests.exports import ExportFormat, FilesCheck, ParityReport
from engine.storage.run_db.writer import RunWriter
from engine.storage.run_folder.run import DATABASE, read_spec, write_spec
from tests.engine.export.make_run import RUN_ID


def equal_parity() -> ParityReport:
    return ParityReport(
        verdict="equal", format="gguf", dtype="q8_0", computed_in="float32", device="cpu",
        limits=LIMITS["q8_0"], files=FilesCheck(files=1, bytes=1), weights=None, logprobs=None,
        greedy=None, same=None, seconds=1.0,
    )  # fmt: skip


def test_card_contains_run_facts_and_no_local_details(run: Path, tmp_path: Path) -> None:
    source = read_source(run, 3, 4)
    card = model_card(source, equal_parity())
    for words in (
        RUN_ID, "amber-crane", "unknown; look up the licence", "Short answers are better.",
        "| 3 | 0.300 |", "0.200 [0.100, 0.300]", "0.500 [0.400, 0.600]", "openai/gpt-5.4",
        source.adapter_sha256, "| seed | 7 |", "Every reward part has weight 1", "llama-server",
    ):  # fmt: skip
        assert words in card, words
    home = str(Path.home())
    for secret in (str(tmp_path), home, f"{getpass.getuser()}@", socket.gethostname() + "."):
        assert secret not in card


def test_card_of_an_sft_run_has_no_reward(run: Path, tmp_path: Path) -> None:
    project = Path(shutil.copytree(run.parents[1], tmp_path / "letters"))
    folder = project / "runs" / run.name
    train_tally, held_out_tally = Tally(examples=22, trained=1234), Tally(examples=2)
    plan = SupervisedPlan(
        train=train_tally, held_out=held_out_tally, updates=18, files=["good.jsonl"], skipped=3
    )
    changed = {"kind": "sft", "supervised": plan, "rubric": ""}
    write_spec(folder, read_spec(folder).model_copy(update=changed))
    card = model_card(read_source(folder, 3, 4), equal_parity())
    for words in (
        "trained by supervised training", "tags: [atelier, sft, lora]", "step 3 of 18 |",
        "22 demonstrations from `good.jsonl`; 3 invalid lines left out",
        "1,234 per epoch", "linear",
    ):  # fmt: skip
        assert words in card, words
    for words in ("## Reward", "rollouts in total", "reinforcement"):
        assert words not in card, words


def test_card_contains_the_newest_evaluation(run: Path, tmp_path: Path) -> None:
    project = Path(shutil.copytree(run.parents[1], tmp_path / "letters"))
    store_evaluation(project, "01K1", 0.3, step=3)
    store_evaluation(project, "01K2", 0.4, step=3)
    store_evaluation(project, "01K3", 0.5, step=2)
    (project / "runs" / "01K4").mkdir()
    (project / "runs" / "01K4" / "run.json").write_text("{")
    source = read_source(project / "runs" / run.name, 3, 4)
    assert source.evaluation is not None
    card = model_card(source, equal_parity())
    assert "12 scenarios × 2 rollouts." in card
    assert "| base | 0.100 [0.000, 0.200] |  |  |" in card
    assert "| amber-crane@3 | 0.500 [0.400, 0.600] | 0.400 [0.300, 0.500] | better |" in card


def store_evaluation(project: Path, run_id: str, gain: float, step: int) -> None:
    """Store an evaluation run that compares a checkpoint with the base."""
    weights = Contestant(name="x", kind="checkpoint", model="m", run_id=RUN_ID, step=step)
    plan = EvaluationPlan(
        contestants=[weights], attempts=2, scenarios=12, source="validation", seed=0
    )
    spec = RunSpec(
        id=run_id, name="e", kind="evaluation", project="letters", started_at=0.0,
        config=ProjectConfig(), model_path="", evaluation=plan,
    )  # fmt: skip
    folder = project / "runs" / run_id
    folder.mkdir()
    write_spec(folder, spec)
    versus = Comparison(
        against="base", difference=interval(gain), p=0.01, wins=9, ties=2, losses=1, word="better"
    )
    result = EvaluationResult(
        done=48, total=48, scenarios=12, attempts=2, seed=0, judged=False,
        standings=[standing("base", 0.1), standing(f"amber-crane@{step}", 0.1 + gain, versus)],
    )  # fmt: skip

    async def store() -> None:
        writer = RunWriter(folder / DATABASE, run_id)
        await writer.say(EvaluationFinished(result=result))
        writer.close()

    asyncio.run(store())


def standing(name: str, mean: float, versus: Comparison | None = None) -> Standing:
    return Standing(
        name=name, kind="base" if versus is None else "checkpoint", attempts=24, unscored=0,
        reward=interval(mean), latency_median_s=None, latency_p90_s=None, tokens_mean=None,
        usd_per_1000=None, versus=versus,
    )  # fmt: skip


def interval(mean: float) -> Interval:
    return Interval(mean=mean, low=mean - 0.1, high=mean + 0.1, count=12)


@pytest.mark.parametrize("verified_in", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["adapter", "merged", "gguf"])
def test_serving_commands_use_the_verified_precision(
    run: Path, kind: ExportFormat, verified_in: str
) -> None:
    commands = commands_for(Path("/x"), kind, verified_in, "base", "name", 16)
    (vllm,) = (one for one in commands if one.tool == "vLLM")
    assert f"--dtype {verified_in}" in vllm.command
    parity = equal_parity().model_copy(update={"format": kind, "computed_in": verified_in})
    card = model_card(read_source(run, 3, 4), parity)
    assert f"It was verified in {verified_in}" in card
    if kind != "gguf":
        assert f"--dtype {verified_in}" in card
        assert f'dtype="{verified_in}"' in card

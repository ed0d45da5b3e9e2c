"""Distillation: a teacher's rollouts become demonstrations; failures are counted, nothing is paid
twice."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.events.run import Event, LogWritten, RunFailed, RunFinished, UnknownEvent
from engine.protocol.problems import AtelierError
from engine.protocol.records.demonstrations import SelectDemonstrations, Selection
from engine.protocol.records.runs import RunSummary
from engine.protocol.requests.runs import Command, ImportRun, StartEvaluation, StartRun
from engine.storage.run_folder.run import read_spec
from engine.training.sft.formats import read_line
from engine.training.sft.selection import demonstrate
from tests.engine_http.chat_provider import (
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    ChatScript,
    chat_provider,
)
from tests.engine_http.conftest import Engine, until
from tests.engine_http.test_evaluation import trajectories_of, use_provider
from tests.support.engine_starter import run_command

pytestmark = pytest.mark.usefixtures("real_cache")
TEACHER = "openai/teacher"
CALL_USD = (PROMPT_TOKENS * 10 + COMPLETION_TOKENS * 20) / 1e6
IN_TURN = {"agent.concurrency": 1, "evaluate.concurrency": 1}
FILE = "demonstrations.jsonl"


@pytest.fixture
def chat() -> Iterator[ChatScript]:
    with chat_provider(ChatScript()) as script:
        yield script


def start_distillation(
    engine: Engine, project: Path, keep: str = "best", **more: Any
) -> RunSummary:
    request = StartEvaluation(
        project=str(project),
        demonstrate=SelectDemonstrations(keep=keep),
        **{"models": [TEACHER], "scenarios": "train", "overrides": IN_TURN, "attempts": 2, **more},
    )
    return engine.call(lambda client: client.start_evaluation(request))


def wait_for_finish(engine: Engine, run: RunSummary) -> list[Event | UnknownEvent]:
    events = engine.wait(run)
    assert isinstance(events[-1], RunFinished), events[-1]
    return events


def stored_demonstrations(project: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (project / FILE).read_text().splitlines()]


def select_demonstrations(engine: Engine, run: RunSummary, keep: str, file: str = "") -> Selection:
    selection = SelectDemonstrations(keep=keep, file=file)
    return engine.call(lambda client: client.demonstrate(run.id, selection))


def test_good_teacher_rollouts_become_demonstrations_and_are_paid_once(
    engine: Engine, project: Path, chat: ChatScript
) -> None:
    use_provider(project, chat)
    (project / FILE).write_text('{"text": "mine"}\n')
    # First scenario: one rollout is rejected, the other gets garbage; a later one is rate-limited.
    chat.moods = ["400", "garbage", "garbage", "429"]
    run = start_distillation(engine, project)
    events = wait_for_finish(engine, run)
    messages = [event.text for event in events if isinstance(event, LogWritten)]
    assert messages[0] == (
        "openai/teacher: $10.00 per million input tokens, $20.00 per million output tokens; "
        "at most $5.00 in total."
    )
    assert messages[-1].startswith("3 demonstrations in demonstrations.jsonl from 3 of 4 scenarios")
    mine, *made = stored_demonstrations(project)
    assert mine == {"text": "mine"}, "existing lines stay"
    assert [one["source"]["scenario"] for one in made] == ["s1", "s2", "s3"]
    first = made[0]
    assert [m["role"] for m in first["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert first["messages"][2]["tool_calls"][0]["function"]["name"] == "look_up"
    assert first["tools"][0]["function"]["name"] == "look_up"
    assert first["source"] | {"run": ""} == {
        "run": "", "model": TEACHER, "scenario": "s1", "reward": 1.0
    }  # fmt: skip
    example = read_line(json.dumps(first).encode())
    assert example.learned == {2, 4}

    selection = select_demonstrations(engine, run, "above:0.5")
    assert (selection.kept, selection.scenarios, selection.of, selection.mean) == (6, 3, 4, 1.0)
    assert selection.left_out == {"unscored: provider.refused": 1, "unscored: provider.server": 1}
    assert select_demonstrations(engine, run, "above:1.5").left_out["reward below 1.5"] == 6
    with pytest.raises(AtelierError, match="is not a selection rule"):
        select_demonstrations(engine, run, "some")

    number_of_calls = len(chat.asked)
    again = start_distillation(engine, project, "all")
    wait_for_finish(engine, again)
    plan = read_spec(Path(again.path)).evaluation
    assert plan is not None
    assert (again.id != run.id, plan.scenarios) == (True, 1), "only the failed scenario is repeated"
    assert len(chat.asked) == number_of_calls + 4
    assert len(stored_demonstrations(project)) == 1 + 6 + 2, "selected by the new rule"
    whole = (project / FILE).read_bytes()
    third = start_distillation(engine, project, "all")
    assert third.id == again.id
    assert third.state == "finished"
    assert len(chat.asked) == number_of_calls + 4
    assert (project / FILE).read_bytes() == whole


def test_budget_is_kept_and_larger_budget_requests_only_the_rest(
    engine: Engine, project: Path, chat: ChatScript
) -> None:
    use_provider(project, chat, budget=0.013)
    run = start_distillation(engine, project, attempts=1)
    wait_for_finish(engine, run)
    selection = select_demonstrations(engine, run, "all")
    spent = len(chat.asked) * CALL_USD
    assert 0 < selection.kept < 4
    assert selection.left_out == {"unscored: evaluate.budget": 4 - selection.kept}
    assert spent <= 0.013
    before = len(chat.asked)
    more = start_distillation(
        engine, project, attempts=1, overrides={**IN_TURN, "evaluate.budget_usd": 5.0}
    )
    wait_for_finish(engine, more)
    assert len(chat.asked) - before == 2 * (4 - selection.kept)
    assert len(stored_demonstrations(project)) == 4


def test_stopped_distillation_is_resumed(engine: Engine, project: Path, chat: ChatScript) -> None:
    use_provider(project, chat)
    run = start_distillation(engine, project)
    until(lambda: len(trajectories_of(engine, run)) >= 1)
    engine.call(lambda c: c.command(run.id, Command(action="stop_now")))
    engine.wait(run)
    until(lambda: engine.call(lambda c: c.info()).living_runs == 0)
    again = start_distillation(engine, project)
    assert again.id == run.id
    wait_for_finish(engine, run)
    assert len(trajectories_of(engine, run)) == 8
    assert len(stored_demonstrations(project)) == 4


def stopped_distillation(
    engine: Engine, project: Path, chat: ChatScript, scored: int = 1, **more: Any
) -> RunSummary:
    """Stop a distillation after `scored` rollouts, while the next one waits for a response."""
    chat.moods = [*["good"] * 2 * scored, "wait"]
    run = start_distillation(engine, project, **{"attempts": 1, **more})
    until(lambda: len(chat.asked) == 2 * scored + 1)
    assert len(scenario_ids(engine, run)) == scored
    engine.call(lambda c: c.command(run.id, Command(action="stop_now")))
    chat.over.set()
    engine.wait(run)
    until(lambda: engine.call(lambda c: c.info()).living_runs == 0)
    return run


def scenario_ids(engine: Engine, run: RunSummary) -> list[str]:
    return sorted(row.scenario_id for row in trajectories_of(engine, run))


def test_new_budget_starts_new_run_and_reuses_results(
    engine: Engine, project: Path, chat: ChatScript
) -> None:
    use_provider(project, chat)
    first = stopped_distillation(
        engine, project, chat, overrides={**IN_TURN, "evaluate.budget_usd": 20.0}
    )
    lower = {**IN_TURN, "evaluate.budget_usd": 1.0}
    second = start_distillation(engine, project, attempts=1, overrides=lower)
    wait_for_finish(engine, second)
    assert second.id != first.id
    assert read_spec(Path(second.path)).config.evaluate.budget_usd == 1.0
    both = [*scenario_ids(engine, first), *scenario_ids(engine, second)]
    assert sorted(both) == ["s0", "s1", "s2", "s3"], "successful rollouts are not paid twice"
    assert len(stored_demonstrations(project)) == 4
    third = start_distillation(engine, project, attempts=1, overrides=lower)
    assert (third.id, third.state) == (second.id, "finished")
    higher = start_distillation(
        engine, project, attempts=1, overrides={**lower, "evaluate.budget_usd": 20.0}
    )
    assert higher.id == second.id, "the first run has no scenarios left"


def test_prices_given_after_failure_are_used(engine: Engine, project: Path) -> None:
    unknown = ["nobody/teacher"]
    blind = start_distillation(engine, project, models=unknown)
    last = engine.wait(blind)[-1]
    assert isinstance(last, RunFailed)
    assert last.problem.code == "evaluate.price_unknown"
    until(lambda: engine.call(lambda c: c.info()).living_runs == 0)
    prices = {"evaluate.price_prompt": 10, "evaluate.price_completion": 20}
    priced = start_distillation(engine, project, models=unknown, overrides={**IN_TURN, **prices})
    messages = [e.text for e in wait_for_finish(engine, priced) if isinstance(e, LogWritten)]
    assert priced.id != blind.id
    assert messages[0].startswith("nobody/teacher: $10.00 per million input tokens")


def test_other_scenarios_start_another_run(engine: Engine, project: Path, chat: ChatScript) -> None:
    use_provider(project, chat)
    for name in "ab":
        made = [json.dumps({"id": f"{name}{n}", "q": f"Say {name} {n}"}) for n in range(3)]
        (project / f"{name}.jsonl").write_text("\n".join(made) + "\n")
    first = stopped_distillation(engine, project, chat, scenarios="a.jsonl")
    second = start_distillation(engine, project, attempts=1, scenarios="b.jsonl")
    wait_for_finish(engine, second)
    assert second.id != first.id
    assert scenario_ids(engine, second) == ["b0", "b1", "b2"]
    again = start_distillation(engine, project, attempts=1, scenarios="a.jsonl")
    assert again.id == first.id, "the stopped run is resumed"
    wait_for_finish(engine, first)
    assert scenario_ids(engine, first) == ["a0", "a1", "a2"]


def test_complete_results_of_stopped_run_need_no_request(
    engine: Engine, project: Path, chat: ChatScript
) -> None:
    use_provider(project, chat)
    stopped_distillation(engine, project, chat, scored=7, attempts=2)
    number_of_calls = len(chat.asked)
    distill = [
        "distill", str(project), "--teacher", TEACHER,
        "--attempts", "2", "--budget", "1", "--workspace", str(engine.workspace),
    ]  # fmt: skip
    done = run_command(*distill)
    assert done.returncode == 0, done.stderr
    assert "nothing was requested" in done.stdout
    assert "Stopped" not in done.stdout
    assert (len(chat.asked), len(stored_demonstrations(project))) == (number_of_calls, 4)


def test_rollouts_of_imported_run_become_demonstrations(
    engine: Engine, project: Path, workspace: Path
) -> None:
    attempts = [
        {
            "group": f"g{n // 2}",
            "reward": None if n == 0 else n / 10,
            "messages": [
                {"role": "user", "content": f"Say {n // 2}"},
                {"role": "assistant", "content": f"word {n}"},
            ],
        }
        for n in range(8)
    ]
    source = workspace / "attempts.jsonl"
    source.write_text("".join(json.dumps(one) + "\n" for one in attempts))
    request = ImportRun(source=str(source))
    run = engine.call(lambda client: client.import_run(str(project), request))
    folder = Path(run.path)
    best = demonstrate(folder, SelectDemonstrations())
    assert (best.kept, best.of, best.mean) == (4, 4, pytest.approx(0.4))
    assert best.left_out == {"unscored: judge.unrewarded": 1, "not the best of its scenario": 3}
    good = demonstrate(folder, SelectDemonstrations(keep="above:0.4"))
    assert (good.kept, good.left_out["reward below 0.4"]) == (4, 3)
    assert [one["messages"][1]["content"] for one in stored_demonstrations(project)] == [
        "word 4", "word 5", "word 6", "word 7"
    ]  # fmt: skip
    request_sft = StartRun(project=str(project), kind="sft")
    wait_for_finish(engine, engine.call(lambda client: client.start_run(request_sft)))


def test_distill_command(
    engine: Engine, project: Path, workspace: Path, tiny_model: Path, chat: ChatScript
) -> None:
    use_provider(project, chat)
    distill = [
        "distill", str(project), "--teacher", TEACHER, "--keep", "best:0.5",
        "--budget", "1", "--workspace", str(engine.workspace),
    ]  # fmt: skip
    done = run_command(*distill)
    assert done.returncode == 0, done.stderr
    assert "at most $1.00 in total" in done.stdout
    assert "4 demonstrations in demonstrations.jsonl from 4 of 4 scenarios" in done.stdout
    number_of_calls = len(chat.asked)
    again = run_command(*distill)
    assert "nothing was requested" in again.stdout
    assert (again.returncode, len(chat.asked)) == (0, number_of_calls)
    plain = shutil.copytree(tiny_model, workspace / "plain")
    (plain / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    settings = project / "project.toml"
    settings.write_text(settings.read_text().replace(str(tiny_model), str(plain)))
    check = run_command("sft", str(project), "--check")
    assert check.returncode == 1, "the plain model's template does not support tools"
    assert "line 4: The model's chat template leaves out the tool calls" in check.stdout
    wrong = run_command(*distill, "--teacher", "gpt")
    assert wrong.returncode == 2

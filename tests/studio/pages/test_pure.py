"""Computations of the pages, without drawing."""

from typing import Any

import pytest

from engine.protocol.config.algorithm import Algorithm
from engine.protocol.config.project import ProjectConfig, TrainConfig
from engine.protocol.records.metrics import metric
from engine.protocol.records.runs import Interval
from engine.protocol.requests.filters import is_error_result
from studio.pages.home.samples import even_columns
from studio.pages.run.charts.diagnostics import SECTIONS
from studio.pages.run.charts.main import CHARTS, part_token
from studio.pages.run.strip import cells_of, ramp_ends
from studio.pages.setup.form.effort import STOPS, stop_of
from studio.pages.setup.form.fields import changed, specs, value_at
from studio.pages.setup.form.method import deviations, numbers
from studio.pages.setup.preflight.drawings import spread_of
from studio.pages.setup.preflight.panel import advice
from studio.pages.trajectories.reader.transcript_rows import (
    divergence_texts,
    items_of,
    outline_of,
    ranks,
    split_reasoning,
)
from studio.store.runs.state import RunState
from studio.widgets.charts.grid.chart_grid import GAP, LEAST_HEIGHT, columns_for, places, stacked
from studio.widgets.transcript.items import Message, Note, Outcome, Token, ToolCall
from tests.studio.fakes.reasoned import with_closed_reasoning, with_reasoning
from tests.studio.fakes.simulated_run import SMALL, Simulation, whole


@pytest.fixture
def simulation() -> Simulation:
    run = Simulation(train=SMALL)
    run.begin()
    run.step(1)
    run.step(2)
    return run


@pytest.mark.parametrize(("width", "columns"), [(600, 1), (900, 2), (1320, 2), (1400, 3)])
def test_charts_are_laid_out_in_fitting_columns(width: int, columns: int) -> None:
    assert columns_for(width) == columns
    cells = places(6, width, 700)
    assert len({cell.left() for cell in cells}) == columns
    assert all(cell.height() >= LEAST_HEIGHT for cell in cells)
    assert max(cell.right() for cell in cells) < width
    for first in cells:
        assert not any(first.intersects(other) for other in cells if other is not first)
    assert cells[columns].top() - cells[0].bottom() - 1 == GAP


@pytest.mark.parametrize(
    ("cards", "most", "columns"),
    [(0, 3, 1), (1, 4, 1), (3, 4, 3), (4, 3, 2), (5, 3, 3), (6, 4, 3), (7, 4, 4), (9, 4, 3)],
)
def test_sample_cards_fill_rows_evenly(cards: int, most: int, columns: int) -> None:
    assert even_columns(cards, most) == columns


def test_strip_cells_show_step_state(simulation: Simulation) -> None:
    state = RunState("r").fold(simulation.made.events)
    assert [cell.state for cell in cells_of(state)][2:] == ["planned"] * 4
    list(simulation.rollouts(3))
    state.fold(simulation.made.events[state.seq :])
    assert cells_of(state)[2].state == "running"
    simulation.fail(3)
    state.fold(simulation.made.events[state.seq :])
    assert cells_of(state)[2].state == "stopped"
    assert len(cells_of(state)) == 6
    low, high = ramp_ends(state)
    assert low < high


def test_every_setting_has_help_and_limits() -> None:
    rows = {spec.key: spec for spec in specs()}
    assert all(spec.help for spec in rows.values() if not spec.key.startswith("judge"))
    size = rows["train.group_size"]
    assert (size.low, size.high, size.default) == (2, 256, 8)
    config = ProjectConfig(train=TrainConfig(lr=3e-4))
    assert [(spec.key, value) for spec, value in changed(config)] == [("train.lr", 3e-4)]
    assert value_at(config, "train.algorithm.advantage.kind") == "group_mean"


def test_only_deviations_from_preset_are_changed() -> None:
    config = ProjectConfig(train=TrainConfig(algorithm=Algorithm(preset="dapo", refills=1, kl=0.1)))
    assert [spec.key for spec, _ in changed(config)] == [
        "train.algorithm.kl",
        "train.algorithm.refills",
    ]
    assert deviations(config.train.algorithm) == ["kl", "refills"]
    assert deviations(Algorithm(preset="ppo")) == []
    assert dict(numbers(config)) == {
        "Rollouts per step": "64, up to 128",
        "Trained tokens per step": "≤ 65,536",
        "Optimizer steps": "100 in all",
        "Extra forward passes": "1: untrained model",
    }


@pytest.mark.parametrize(
    ("preset", "passes"),
    [
        ("atelier", "none"),
        ("cispo", "none"),
        ("gspo", "1: before the update"),
        ("ppo", "1: before the update"),
        ("rloo", "2: before the update, untrained model"),
    ],
)
def test_number_of_extra_forward_passes_per_preset(preset: Any, passes: str) -> None:
    config = ProjectConfig(train=TrainConfig(algorithm=Algorithm(preset=preset)))
    assert dict(numbers(config))["Extra forward passes"] == passes


def test_effort_stops() -> None:
    assert [stop_of(steps) for _, steps in STOPS] == [0, 1, 2, 3, 4]
    assert stop_of(61) is None


@pytest.mark.parametrize(
    ("mean", "word"), [(0.1, "warm-up"), (0.5, "sometimes"), (0.9, "harder scenarios")]
)
def test_baseline_has_one_suggestion(mean: float, word: str) -> None:
    rate = Interval(mean=mean, low=mean - 0.05, high=mean + 0.05, count=20)
    assert word in advice(rate, [0.0, 0.4, 0.6, 1.0])
    assert sum(spread_of([0.0, 0.4, 0.6, 1.0])) == 1


def test_transcript_contains_tokens(simulation: Simulation) -> None:
    record = whole(simulation.made.trajectories[0])
    items = items_of(record)
    turns = [item for item in items if isinstance(item, Message) and item.role == "assistant"]
    sizes = [end - start for branch in record.branches for start, end in branch.turns]
    assert [len(turn.tokens) for turn in turns] == sizes
    assert sum(len(turn.tokens) for turn in turns) == record.branches[0].sampled
    assert all(token.logprob is not None for turn in turns for token in turn.tokens)
    assert isinstance(items[-1], Outcome)
    assert any(isinstance(item, ToolCall) for item in items)
    assert outline_of(items)[0].words == "System"
    unaligned = record.model_copy(update={"branches": []})
    assert not any(item.tokens for item in items_of(unaligned) if isinstance(item, Message))


def test_turn_shows_its_reward(simulation: Simulation) -> None:
    record = whole(simulation.made.trajectories[0])
    (branch,) = record.branches
    paid = branch.model_copy(update={"rewards": [0.5 - n for n in range(len(branch.spans))]})
    record = record.model_copy(update={"branches": [paid]})

    def facts(**how: bool) -> list[str]:
        items = items_of(record, **how)
        return [i.facts for i in items if isinstance(i, Message) and i.role == "assistant"]

    assert facts()[0].endswith(" tokens, reward +0.50")
    assert facts()[1].endswith("reward −0.50")
    assert facts(shared=True)[0] == "reward +0.50"
    assert not any("reward" in fact for fact in facts(blind=True))
    assert "reward" not in outline_of(items_of(record))[2].fact


def test_unscored_outcome_has_reason_and_no_zero(simulation: Simulation) -> None:
    summary = simulation.made.trajectories[0].model_copy(update={"reward": None, "parts": {}})
    end = items_of(whole(summary))[-1]
    assert isinstance(end, Outcome)
    assert end.title.startswith("Unscored ·")
    assert end.reward == "–"


def test_identical_siblings_do_not_diverge(simulation: Simulation) -> None:
    record = whole(simulation.made.trajectories[0])
    other = record.model_copy(update={"index": record.index + 1})
    texts = divergence_texts([record, other])
    assert texts[0] == f"Identical to trajectory {other.index + 1}"
    assert divergence_texts([record]) == [""], "nothing to diverge from"
    group = simulation.made.groups[0]
    assert sorted(ranks(group).values())[0] == 1


def test_errors_are_recognized_in_tool_results() -> None:
    assert is_error_result("Error: no email")
    assert is_error_result('{"error": "x"}')
    assert not is_error_result("No error was found")


def test_reward_parts_keep_their_color() -> None:
    names = ["judge", "sources", "answer", "turn cost"]
    assert [part_token(name, names) for name in names] == ["plot-2", "plot-3", "plot-6", "plot-5"]


def test_chart_keys_are_unique() -> None:
    keys = [spec.key for spec in CHARTS]
    assert len(keys) == len(set(keys)) >= 12


def test_every_chart_is_explained_by_metric_registry() -> None:
    for spec in CHARTS:
        assert spec.metrics, spec.key
        assert [key for key in spec.metrics if metric(key) is None] == []
        assert bool(spec.section) == bool(spec.words)
        assert spec.section in ("", *SECTIONS)


@pytest.mark.parametrize(("width", "columns"), [(600, 1), (900, 2), (1300, 4)])
def test_sections_start_below_the_view_with_visible_heading(width: int, columns: int) -> None:
    (main, *others), headings = stacked([6, 4, 4], width, 900)
    assert len(headings) == len(others) == 2
    if columns > 1:
        assert main[-1].bottom() < headings[0].top() < 900
    for heading, cells in zip(headings, others, strict=True):
        assert len({cell.left() for cell in cells}) == columns
        assert heading.bottom() < cells[0].top()
    every = [*main, *headings, *others[0], *others[1]]
    for first in every:
        assert not any(first.intersects(other) for other in every if other is not first)


def test_reasoning_is_split_from_the_tokens_of_the_answer(simulation: Simulation) -> None:
    record = with_reasoning(whole(simulation.made.trajectories[0]))
    items = items_of(record)
    turns = [item for item in items if isinstance(item, Message) and item.role == "assistant"]
    sizes = [end - start for branch in record.branches for start, end in branch.turns]
    assert [len(t.reasoning_tokens) + len(t.tokens) for t in turns] == sizes
    for turn in turns:
        thought = "".join(token.text for token in turn.reasoning_tokens)
        assert thought.startswith("<think>\n")
        assert thought.endswith("\n</think>")
        assert not turn.tokens[0].text.isspace()
        assert "</think>" not in "".join(token.text for token in turn.tokens)

    closed = with_closed_reasoning(whole(simulation.made.trajectories[0]))
    assert len(closed.model_calls) == len(record.model_calls)
    ours = [item for item in items_of(closed) if isinstance(item, Message)]
    for turn, other in zip([o for o in ours if o.role == "assistant"], turns, strict=True):
        assert [t.text for t in turn.reasoning_tokens] == [t.text for t in other.reasoning_tokens]
        assert [t.forced for t in turn.reasoning_tokens][-2:] == [False, True]
        assert [t.logprob for t in turn.tokens] == [t.logprob for t in other.tokens]

    unaligned = record.model_copy(update={"branches": []})
    texts = [item.reasoning for item in items_of(unaligned) if isinstance(item, Message)]
    assert texts == [one.reasoning for one in record.messages if one.role != "tool"]


@pytest.mark.parametrize(
    ("pieces", "reasoning", "content", "count"),
    [
        (["<think>", "why", "</think>", " The", " end"], "why", "The end", 3),
        (["why", "\n</think>\n\n", "<tool_call>", "x"], "why", "", 2),
        (["<analysis>", "why", "<end>", "<final>", "So"], "why", "So", 4),
        (["why", " so"], "why so", "", 2),
        (["other", "text"], "why", "text", 0),
        (["a", "b"], "", "ab", 0),
    ],
)
def test_reasoning_ends_before_the_answer(
    pieces: list[str], reasoning: str, content: str, count: int
) -> None:
    tokens = [Token(piece) for piece in pieces]
    thoughts, rest = split_reasoning(tokens, reasoning, content)
    assert (len(thoughts), len(rest)) == (count, len(pieces) - count)


def test_new_branch_is_noted_where_it_starts_with_its_reason(simulation: Simulation) -> None:
    items = items_of(with_reasoning(whole(simulation.made.trajectories[0])))
    (row,) = [n for n, item in enumerate(items) if isinstance(item, Note)]
    note, head = items[row], items[row + 1]
    assert isinstance(note, Note)
    assert isinstance(head, Message)
    assert note.title == "New branch"
    assert note.facts == "the chat template leaves out the reasoning of earlier answers"
    assert head.title.endswith("response")

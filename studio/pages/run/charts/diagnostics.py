"""Diagnostic charts: update composition, trainer vs. sampler, hardware utilization. The metric
registry provides the help texts."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from studio.models.run import RunModel
from studio.pages.run.charts.spec import ChartSpec, Fill, Maker, last_of
from studio.store.runs.backend_labels import precision
from studio.store.runs.status_words import largest_gap
from studio.text import formatting
from studio.widgets.charts.chart_card import ChartCard
from studio.widgets.charts.link import ChartLink
from studio.widgets.charts.pane import Limit

Form = Callable[[float], str]
SECTIONS = {
    "Learning": "which trajectories the update uses",
    "Reward quality": "agreement of the judge with rules and labels",
    "Policy drift": "difference between trainer and sampler on the sampled tokens",
    "Speed": "hardware utilization by phase",
}


class Line(NamedTuple):
    metric: str
    name: str
    token: str


def percent(value: float) -> str:
    """Format a share as a percentage, with a decimal below 10 %."""
    return formatting.percent(value, 0 if value >= 0.1 else 1)


def lines(
    title: str,
    drawn: Sequence[Line],
    form: Form = formatting.significant,
    *,
    zero: bool = True,
    log: bool = False,
    full: bool = False,
    limit: Callable[[RunModel], Limit | None] = lambda run: None,
) -> Maker:
    """Return a maker of a chart of lines. `form` formats values, `zero` starts the axis at 0, `log`
    is logarithmic, `full` means 0 to 1; `limit(run)` is a dashed line (None: no line)."""

    def make(link: ChartLink) -> tuple[ChartCard, Fill]:
        card = ChartCard(title, link)
        several = len(drawn) > 1
        made = [
            (line.metric, card.add_line(line.name, line.token, form=form, in_legend=several))
            for line in drawn
        ]
        unit = "%" if form is percent else ""
        card.set_y(0 if full else None, 1 if full else None, zero=zero, unit=unit, log=log)

        def fill(run: RunModel) -> None:
            for metric, line in made:
                line.set_data(*run.series(metric))
            last = last_of(run, drawn[0].metric)
            card.set_last(form(last) if last is not None else "")
            wanted = limit(run)
            card.set_limits([wanted] if wanted else [])

        return card, fill

    return make


def _lost(link: ChartLink) -> tuple[ChartCard, Fill]:
    card = ChartCard("Rollouts without signal", link)
    add = partial(card.add_line, ghost=False, form=percent)
    silent, truncated = add("no signal", "plot-1"), add("truncated", "plot-2")
    unscored = add("unscored", "plot-5")
    card.set_y(0, None, unit="%")

    def fill(run: RunModel) -> None:
        silent.set_data(*run.series("groups/no_signal"))
        truncated.set_data(*run.series("truncated"))
        steps, counts, attempts = run.aligned("unscored", "trajectories")
        unscored.set_data(steps, counts / np.maximum(attempts, 1))

    return card, fill


def _ratio(link: ChartLink) -> tuple[ChartCard, Fill]:
    card = ChartCard("Importance ratio", link, ("Median, percentiles 1–99", "Largest"))
    band = card.add_band("1–99 %", "plot-1", form=_three)
    median = card.add_line("median", "plot-1", ghost=False, form=_three)
    largest = card.add_line("largest", "plot-5", pane=1, ghost=False)
    card.set_y(None, None, zero=False)
    card.set_y(None, None, pane=1, log=True)

    def fill(run: RunModel) -> None:
        band.set_data(*run.aligned("ratio/p1", "ratio/p99"))
        median.set_data(*run.series("ratio/p50"))
        largest.set_data(*run.series("ratio/max"))
        last = last_of(run, "ratio/max")
        card.set_last(formatting.number(last) if last is not None else "")

    return card, fill


def _three(value: float) -> str:
    return formatting.number(value, 3)


def _drift(link: ChartLink) -> tuple[ChartCard, Fill]:
    card = ChartCard(
        "Effective sample size, KL", link, ("Effective sample size", "KL, nats per token")
    )
    ess = card.add_line("effective", "plot-1", form=percent)
    form = formatting.significant
    sampler = card.add_line("to the sampler", "plot-6", pane=1, form=form)
    base = card.add_line("to the base model", "plot-7", pane=1, form=form)
    card.set_y(0, 1, unit="%")
    card.set_y(None, None, pane=1, log=True)

    def fill(run: RunModel) -> None:
        ess.set_data(*run.series("ess"))
        sampler.set_data(*run.series("kl/sampler"))
        base.set_data(*run.series("kl"))
        last, kl = last_of(run, "ess"), last_of(run, "kl/sampler")
        card.set_last(f"{percent(last)} · {formatting.significant(kl)}" if last is not None else "")

    return card, fill


def norm_limit(run: RunModel) -> Limit | None:
    """Return the limit line at the maximum gradient norm; None until the run's config is known."""
    spec = run.state.spec
    return Limit(spec.config.train.algorithm.max_grad_norm, "clipped above") if spec else None


def _gap_limit(run: RunModel) -> Limit | None:
    dtype = precision(run.state)
    return Limit(largest_gap(dtype), "expected from rounding") if dtype else None


GAP = (
    Line("logprob_gap/max", "largest", "plot-5"),
    Line("logprob_gap/p99", "99 %", "plot-3"),
    Line("logprob_gap/mean", "mean", "plot-1"),
)


def _gap(link: ChartLink) -> tuple[ChartCard, Fill]:
    """Build the chart of log-prob gap and KL of each update, in the same unit (nats)."""
    card = ChartCard("Log-prob gap", link)
    form = formatting.significant
    sampled = [card.add_line(line.name, line.token, form=form) for line in GAP]
    moved = card.add_line("policy change", "plot-7", ghost=False, dashed=True, form=form)
    card.set_y(None, None, zero=True, log=True)

    def fill(run: RunModel) -> None:
        for line, drawn in zip(GAP, sampled, strict=True):
            drawn.set_data(*run.series(line.metric))
        moved.set_data(*run.series("publish_moved"))
        card.set_shown(moved, "policy change", bool(len(run.series("publish_moved")[0])))
        last = last_of(run, GAP[0].metric)
        card.set_last(form(last) if last is not None else "")
        wanted = _gap_limit(run)
        card.set_limits([wanted] if wanted else [])

    return card, fill


CLIP = (
    Line("clip/high", "above", "plot-1"),
    Line("clip/low", "below", "plot-5"),
    Line("masked", "masked", "plot-3"),
)


def _use(phase: str) -> tuple[Line, ...]:
    return (
        Line(f"goodput/{phase}", "goodput", "plot-1"),
        Line(f"hardware/{phase}", "hardware", "plot-7"),
    )


SHARING = (Line("sharing/train", "training", "plot-3"), Line("sharing/sample", "prompts", "plot-1"))
NORM, LOSS = (Line("grad_norm", "norm", "plot-1"),), (Line("loss", "loss", "plot-1"),)
TRUST = (
    Line("judge/rules", "judge vs. rules, τ", "plot-2"),
    Line("judge/local", "local judge, pairs", "plot-1"),
    Line("judge/canaries", "canaries detected", "plot-4"),
)
WATCH = (
    Line("watch/addresses_judge", "address the judge", "plot-5"),
    Line("watch/repetition", "repeated phrases", "plot-3"),
    Line("malformed_calls", "malformed tool calls", "plot-4"),
)
CLOSED = (Line("reasoning_closed", "closed", "plot-2"),)
RATE, ROWS = (Line("lr", "rate", "plot-7"),), (Line("rows/sample", "rollouts", "plot-1"),)

DIAGNOSTICS: tuple[ChartSpec, ...] = (
    ChartSpec(
        "lost",
        "Rollouts without signal",
        _lost,
        ("groups/no_signal", "truncated", "unscored"),
        "Learning",
        "Share of groups and rollouts that contribute little or no gradient",
    ),
    ChartSpec(
        "reasoning_closed",
        "Reasoning closed by the budget",
        lines("Reasoning closed by the budget", CLOSED, percent),
        ("reasoning_closed",),
        "Learning",
        "Share of answers whose reasoning was closed by model.thinking_budget",
        needs="budget",
    ),
    ChartSpec(
        "grad_norm",
        "Gradient norm",
        lines("Gradient norm", NORM, log=True, limit=norm_limit),
        ("grad_norm",),
        "Learning",
        "Gradient norm before clipping",
    ),
    ChartSpec(
        "loss",
        "Loss",
        lines("Loss", LOSS, zero=False),
        ("loss",),
        "Learning",
        "Policy-gradient loss: near 0 by design, not a measure of success",
    ),
    ChartSpec(
        "lr",
        "Learning rate",
        lines("Learning rate", RATE),
        ("lr",),
        "Learning",
        "Step size of the optimizer",
    ),
    ChartSpec(
        "judge",
        "Judge",
        lines("Judge", TRUST, formatting.number, zero=False),
        ("judge/rules", "judge/local", "judge/canaries"),
        "Reward quality",
        "Judge vs. rules, local judge vs. labels, and share of planted bad answers detected",
        needs="judge",
    ),
    ChartSpec(
        "watch",
        "Suspicious rollouts",
        lines("Suspicious rollouts", WATCH, percent),
        ("watch/addresses_judge", "watch/repetition", "watch/tool_calls", "malformed_calls"),
        "Reward quality",
        "Share of rollouts that address the judge, repeat phrases, or write malformed tool calls",
    ),
    ChartSpec(
        "ratio",
        "Importance ratio",
        _ratio,
        ("ratio/p1", "ratio/p50", "ratio/p99", "ratio/max"),
        "Policy drift",
        "Token probability in the trainer divided by that in the sampler; 1 means equal",
    ),
    ChartSpec(
        "clip",
        "Clip fraction",
        lines("Clip fraction", CLIP, percent),
        ("clip/high", "clip/low", "masked"),
        "Policy drift",
        "Share of tokens clipped or masked",
    ),
    ChartSpec(
        "gap",
        "Log-prob gap",
        _gap,
        (*(line.metric for line in GAP), "publish_moved"),
        "Policy drift",
        "Log-prob difference between sampler and trainer, nats per token",
    ),
    ChartSpec(
        "ess",
        "Effective sample size, KL",
        _drift,
        ("ess", "kl/sampler", "kl"),
        "Policy drift",
        "Effective sample size as a share of tokens; KL divergence",
    ),
    ChartSpec(
        "train_use",
        "Training",
        lines("Training", _use("train"), percent, full=True),
        ("goodput/train", "hardware/train"),
        "Speed",
        "Share of this machine's peak matrix-multiply throughput (MFU)",
    ),
    ChartSpec(
        "sample_use",
        "Sampling",
        lines("Sampling", _use("sample"), percent, full=True),
        ("goodput/sample", "hardware/sample"),
        "Speed",
        "Sampling speed as a share of the limit set by memory bandwidth and cores",
    ),
    ChartSpec(
        "sharing",
        "Prefix sharing",
        lines("Prefix sharing", SHARING, percent, full=True),
        ("sharing/train", "sharing/sample"),
        "Speed",
        "Tokens computed, relative to the same work without prefix sharing",
    ),
    ChartSpec(
        "rows",
        "Batch size while sampling",
        lines("Batch size while sampling", ROWS),
        ("rows/sample",),
        "Speed",
        "Mean number of rollouts per forward pass",
    ),
)

"""Main charts of the Run page, each a card with a function that fills it."""

from collections.abc import Sequence

import numpy as np

from engine.protocol.records.comparison import EQUAL
from engine.protocol.records.labels import is_label_part
from studio.models.run import RunModel
from studio.pages.run.charts.diagnostics import DIAGNOSTICS
from studio.pages.run.charts.spec import ChartSpec, Fill, change_of, is_judged, last_of
from studio.text import formatting
from studio.text.formatting import percent
from studio.widgets.charts.chart_card import ChartCard
from studio.widgets.charts.link import ChartLink
from studio.widgets.charts.pane import EventTag, Limit
from studio.widgets.charts.series import LineSeries
from studio.widgets.tables.weight_bar import TONES

PART_TOKENS = ("plot-3", "plot-6", "plot-8", "plot-2", "plot-4", "plot-7", "plot-5")


def part_token(name: str, names: Sequence[str]) -> str:
    """Return the colour of a reward part among all parts `names`; judge, label, costs are fixed."""
    lowered = name.lower()
    if lowered in ("judge", "ruler"):
        return "plot-2"
    if is_label_part(lowered):
        return "plot-4"
    if any(word in lowered for word in ("cost", "penalty")):
        return "plot-5"
    plain = [n for n in names if n.lower() not in ("judge", "ruler", "label")]
    return PART_TOKENS[plain.index(name) % 3] if name in plain else "plot-7"


class Overlay:
    """Curve of the parent run in a chart card, drawn behind the curve of its branch."""

    def __init__(self, card: ChartCard, metric: str, pane: int = 0) -> None:
        self._card, self._metric, self._pane = card, metric, pane
        self._line: LineSeries | None = None

    def fill(self, run: RunModel) -> None:
        """Draw the parent's curve; hide it if the parent has no values of the metric."""
        steps, values = run.parent_series(self._metric)
        if self._line is None and len(steps):
            self._line = self._card.add_line(
                run.parent_name, "faint", pane=self._pane, dashed=True, behind=True, width_px=1.5
            )
        if self._line is not None:
            self._line.set_data(steps, values)
            self._card.set_shown(self._line, run.parent_name, bool(len(steps)))


def _reward(link: ChartLink) -> tuple[ChartCard, Fill]:
    card = ChartCard("Reward", link)
    line = card.add_line("training", "plot-1")
    tests = card.add_validation()
    overlay = Overlay(card, "reward/mean")

    def fill(run: RunModel) -> None:
        line.set_data(*run.series("reward/mean"))
        judged = is_judged(run.state)
        card.set_shown(line, RELATIVE if judged else "training", True)
        overlay.fill(run)
        rows = [(v.step, v.reward) for v in run.state.validations if v.reward]
        tests.set_data(
            [step for step, _ in rows],
            [reward.mean for _, reward in rows],
            [reward.low for _, reward in rows],
            [reward.high for _, reward in rows],
        )
        card.set_shown(tests, tests.name, bool(rows) or not judged)
        change = change_of(run, "reward/mean")
        words = formatting.signed(change) if change is not None and not judged else ""
        good = None if change is None or abs(change) < 0.005 else change > 0
        last = last_of(run, "reward/mean")
        card.set_last(formatting.number(last) if last is not None else "", words, good)
        card.set_events(_events(run))

    return card, fill


def _win_rate(link: ChartLink) -> tuple[ChartCard, Fill]:
    card = ChartCard("Win rate against the baseline", link)
    card.set_empty("Appears after the second validation")
    card.set_y(0.0, 1.0, unit="%")
    points = card.add_validation("validation, 95 % CI")

    def fill(run: RunModel) -> None:
        rates = sorted(run.state.win_rates.items())
        points.set_data(
            [step for step, _ in rates],
            [rate.mean for _, rate in rates],
            [rate.low for _, rate in rates],
            [rate.high for _, rate in rates],
        )
        card.set_limits([Limit(EQUAL, "baseline", token="muted", left=True)] if rates else [])
        last = rates[-1][1] if rates else None
        good = None if last is None or last.low <= EQUAL <= last.high else last.mean > EQUAL
        words = f"{percent(last.low)} to {percent(last.high)}" if last else ""
        card.set_last(percent(last.mean) if last else "", words, good)
        card.set_events(_events(run))

    return card, fill


def _criteria(link: ChartLink) -> tuple[ChartCard, Fill]:
    card = ChartCard("Criterion scores in validation", link)
    card.set_y(0.0, 1.0)
    lines: dict[str, LineSeries] = {}

    def fill(run: RunModel) -> None:
        validations = [one for one in run.state.validations if one.criteria]
        names = list(validations[-1].criteria) if validations else []
        for name, token in zip(names, TONES, strict=False):
            if name not in lines:
                lines[name] = card.add_line(name, token, ghost=False)
        for name, line in lines.items():
            scored = [one for one in validations if name in one.criteria]
            line.set_data([one.step for one in scored], [one.criteria[name].mean for one in scored])

    return card, fill


RELATIVE = "relative within groups"


def _events(run: RunModel) -> list[EventTag]:
    """Return markers for the start of a branch and for resumes."""
    parent = run.summary.parent if run.summary else None
    resumes = [step for step in run.state.resumes if step]
    if parent is None or parent.begins not in resumes:
        return [EventTag(step, "resumed", "accent") for step in resumes]
    resumes.remove(parent.begins)
    tags = [EventTag(parent.begins, "branched", "accent")]
    return tags + [EventTag(step, "resumed", "accent") for step in resumes]


def _parts(link: ChartLink) -> tuple[ChartCard, Fill]:
    card = ChartCard("Reward parts", link)
    card.set_empty("One line per reward part (shown after step 1)")
    lines: dict[str, object] = {}

    def fill(run: RunModel) -> None:
        keys = run.names("reward/part/")
        names = [key.removeprefix("reward/part/") for key in keys]
        for key, name in zip(keys[:5], names[:5], strict=True):
            if key not in lines:
                lines[key] = card.add_line(name, part_token(name, names))
        for key, line in lines.items():
            line.set_data(*run.series(key))  # type: ignore[attr-defined]

    return card, fill


def _script(link: ChartLink) -> tuple[ChartCard, Fill]:
    card = ChartCard("Script metrics", link)
    card.set_empty("Custom metrics (shown after the first model.log())")
    lines: dict[str, object] = {}

    def fill(run: RunModel) -> None:
        keys = [key for key in run.names("script/") if _is_own(key)][:MOST_LINES]
        for place, key in enumerate(keys):
            if key not in lines:
                lines[key] = card.add_line(key.removeprefix("script/"), f"plot-{place + 1}")
        for key, line in lines.items():
            line.set_data(*run.series(key))  # type: ignore[attr-defined]

    return card, fill


def _is_own(key: str) -> bool:
    """Return whether a metric was logged by the user's script, not by ART for every run."""
    _, split, *rest = key.split("/")
    return bool(rest) and split not in COUNTED_BY_ART and rest[0] not in KNOWN_OF_ART


def _spread(link: ChartLink) -> tuple[ChartCard, Fill]:
    card = ChartCard("Reward spread within groups", link)
    bars = card.add_bars(["groups without signal"], ["ghost"])
    line = card.add_line("standard deviation", "plot-1")
    overlay = Overlay(card, "groups/std_mean")

    def fill(run: RunModel) -> None:
        line.set_data(*run.series("groups/std_mean"))
        overlay.fill(run)
        open_notice = any("no_signal" in finding.code for finding in run.state.findings)
        newest = "warn" if open_notice else None
        bars.set_data(*run.series("groups/no_signal"), newest_token=newest)
        last = last_of(run, "groups/std_mean")
        card.set_last(formatting.number(last) if last is not None else "")

    return card, fill


def _entropy(link: ChartLink) -> tuple[ChartCard, Fill]:
    card = ChartCard(
        "Entropy and importance ratio", link, ("Entropy, nats per token", "Trainer / sampler ratio")
    )
    entropy = card.add_line("entropy", "plot-3")
    ratio = card.add_line("ratio, mean", "plot-6", pane=1, form=_three)
    tail = card.add_line("99 %", "plot-7", pane=1, ghost=False, dashed=True)
    card.set_y(None, None, pane=0, zero=False)
    card.set_y(None, None, pane=1, zero=False)

    def fill(run: RunModel) -> None:
        entropy.set_data(*run.series("entropy"))
        ratio.set_data(*run.series("ratio/mean"))
        tail.set_data(*run.series("ratio/p99"))
        last = last_of(run, "entropy")
        ratio_words = formatting.number(last_of(run, "ratio/mean"), 3)
        card.set_last(f"{formatting.number(last)} · {ratio_words}" if last is not None else "")

    return card, fill


def _three(value: float) -> str:
    return formatting.number(value, 3)


SPEED_PHASES = (
    ("rollouts", "time_s/rolling_out", "plot-1"),
    ("train", "time_s/training", "plot-3"),
    ("publish", "time_s/publishing", "plot-7"),
    ("validation", "time_s/validating", "plot-4"),
)


def _speed(link: ChartLink) -> tuple[ChartCard, Fill]:
    card = ChartCard("Speed", link, ("Tokens per second", "Seconds per step"))
    sample = card.add_line("sampled", "plot-1", ghost=False, form=formatting.short)
    train = card.add_line("trained", "plot-3", ghost=False, form=formatting.short)
    bars = card.add_bars(
        [name for name, _, _ in SPEED_PHASES[:3]],
        [token for _, _, token in SPEED_PHASES[:3]],
        pane=1,
    )

    def fill(run: RunModel) -> None:
        sample.set_data(*run.series("tokens_per_s/sample"))
        train.set_data(*run.series("tokens_per_s/train"))
        steps, *parts = run.aligned(*(metric for _, metric, _ in SPEED_PHASES[:3]))
        bars.set_data(steps, *(np.nan_to_num(part) for part in parts))
        last = last_of(run, "tokens_per_s/sample")
        card.set_last(formatting.short(round(last)) if last is not None else "")

    return card, fill


def _length(link: ChartLink) -> tuple[ChartCard, Fill]:
    card = ChartCard("Completion length", link)
    band = card.add_band("10–90 %", "plot-1")
    line = card.add_line("mean", "plot-1", form=formatting.short)
    overlay = Overlay(card, "tokens/completion_mean")

    def fill(run: RunModel) -> None:
        line.set_data(*run.series("tokens/completion_mean"))
        overlay.fill(run)
        band.set_data(*run.aligned("tokens/completion_p10", "tokens/completion_p90"))
        spec = run.state.spec
        if spec is not None and (highest := _highest(run, "tokens/completion_p90")):
            limit = spec.config.train.max_tokens
            near = highest > 0.6 * limit
            card.set_limits([Limit(limit, f"limit {limit:,}")] if near else [])
        last = last_of(run, "tokens/completion_mean")
        card.set_last(f"{last:,.0f} tokens" if last is not None else "")

    return card, fill


def _reasoning(link: ChartLink) -> tuple[ChartCard, Fill]:
    card = ChartCard("Reasoning length", link)
    line = card.add_line("mean", "plot-3", in_legend=False, form=formatting.short)

    def fill(run: RunModel) -> None:
        line.set_data(*run.series("tokens/reasoning_mean"))
        last = last_of(run, "tokens/reasoning_mean")
        card.set_last(f"{last:,.0f} tokens" if last is not None else "")

    return card, fill


def _highest(run: RunModel, name: str) -> float | None:
    _, values = run.series(name)
    return float(np.nanmax(values)) if len(values) else None


MOST_LINES = 5
COUNTED_BY_ART = ("data", "time", "loss", "throughput", "costs")
KNOWN_OF_ART = ("reward", "exception_rate", "reward_std_dev", "completion_tokens", "duration")
MAIN = (
    ChartSpec(
        "win_rate",
        "Win rate against the baseline",
        _win_rate,
        ("validation/win_rate",),
        needs="judge",
    ),
    ChartSpec(
        "criteria", "Criterion scores", _criteria, ("validation/criterion/*",), needs="criteria"
    ),
    ChartSpec("reward", "Reward", _reward, ("reward/mean",)),
    ChartSpec("parts", "Reward parts", _parts, ("reward/part/*",)),
    ChartSpec(
        "spread", "Reward spread within groups", _spread, ("groups/std_mean", "groups/no_signal")
    ),
    ChartSpec(
        "entropy", "Entropy and importance ratio", _entropy, ("entropy", "ratio/mean", "ratio/p99")
    ),
    ChartSpec(
        "speed", "Speed", _speed, ("tokens_per_s/sample", "tokens_per_s/train", "time_s/step")
    ),
    ChartSpec("length", "Completion length", _length, ("tokens/completion_mean", "truncated")),
    ChartSpec(
        "reasoning", "Reasoning length", _reasoning, ("tokens/reasoning_mean",), needs="reasoning"
    ),
    ChartSpec("script", "Script metrics", _script, ("script/*",), needs="script"),
)
CHARTS: tuple[ChartSpec, ...] = (*MAIN, *DIAGNOSTICS)

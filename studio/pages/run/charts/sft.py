"""Charts of an SFT run: training loss, held-out loss, throughput."""

from functools import partial

from studio.models.run import RunModel
from studio.pages.run.charts.diagnostics import Form, Line, lines, norm_limit, percent
from studio.pages.run.charts.spec import ChartSpec, Fill, Maker, last_of
from studio.store.runs.state import HELD_OUT
from studio.text import formatting
from studio.widgets.charts.chart_card import ChartCard
from studio.widgets.charts.link import ChartLink

form = partial(formatting.number, decimals=3)


def _whole(value: float) -> str:
    return formatting.number(value, 0)


def _loss(link: ChartLink) -> tuple[ChartCard, Fill]:
    card = ChartCard("Loss", link)
    line = card.add_line("per update", "plot-1", form=form)
    card.set_y(None, None, zero=False)

    def fill(run: RunModel) -> None:
        line.set_data(*run.series("loss"))
        last = last_of(run, "loss")
        card.set_last(f"{form(last)} nats" if last is not None else "")

    return card, fill


def _held_out(link: ChartLink) -> tuple[ChartCard, Fill]:
    card = ChartCard("Held-out loss", link)
    line = card.add_line("on data excluded from training", "plot-6", ghost=False, form=form)
    card.set_y(None, None, zero=False)

    def fill(run: RunModel) -> None:
        line.set_data(*run.series(HELD_OUT))
        series = run.state.series.get(HELD_OUT)
        if series is None or series.last is None or series.first is None:
            card.set_last("")
            return
        change = series.last - series.first
        good = None if abs(change) < 0.005 else change < 0
        card.set_last(f"{form(series.last)} nats", formatting.signed(change), good)

    return card, fill


def _as_it_is(title: str, metric: str, shown: Form = formatting.significant) -> Maker:
    """Build a chart without smoothing, for planned or counted values."""

    def make(link: ChartLink) -> tuple[ChartCard, Fill]:
        card = ChartCard(title, link)
        line = card.add_line(title.lower(), "plot-7", ghost=False, in_legend=False, form=shown)

        def fill(run: RunModel) -> None:
            line.set_data(*run.series(metric))
            last = last_of(run, metric)
            card.set_last(shown(last) if last is not None else "")

        return card, fill

    return make


SPEED = (Line("tokens_per_s/train", "trained", "plot-3"),)
TOKENS = (Line("tokens/trained", "tokens", "plot-1"),)
ENTROPY = (Line("entropy", "entropy", "plot-3"),)
NORM = (Line("grad_norm", "norm", "plot-1"),)
USE = (Line("goodput/train", "goodput", "plot-1"), Line("hardware/train", "hardware", "plot-7"))

SFT_CHARTS: tuple[ChartSpec, ...] = (
    ChartSpec(
        "sft_loss",
        "Loss",
        _loss,
        ("loss",),
        words="Mean cross-entropy over the trained tokens of an update",
    ),
    ChartSpec("sft_held_out", "Held-out loss", _held_out, (HELD_OUT,)),
    ChartSpec(
        "sft_lr",
        "Learning rate",
        _as_it_is("Learning rate", "lr"),
        ("lr",),
        words="Warm-up, then decay",
    ),
    ChartSpec(
        "sft_norm",
        "Gradient norm",
        lines("Gradient norm", NORM, log=True, limit=norm_limit),
        ("grad_norm",),
    ),
    ChartSpec("sft_entropy", "Entropy", lines("Entropy", ENTROPY, zero=False), ("entropy",)),
    ChartSpec("sft_speed", "Speed", lines("Speed", SPEED, _whole), ("tokens_per_s/train",)),
    ChartSpec(
        "sft_tokens",
        "Trained tokens",
        lines("Trained tokens", TOKENS, _whole),
        ("tokens/trained",),
        "Speed",
        "Per update",
    ),
    ChartSpec(
        "sft_epoch",
        "Epochs",
        _as_it_is("Epochs", "epoch"),
        ("epoch",),
        "Speed",
        ("Completed passes over the data"),
    ),
    ChartSpec(
        "sft_use",
        "Training",
        lines("Training", USE, percent, full=True),
        ("goodput/train", "hardware/train"),
        "Speed",
        "Share of this machine's peak matrix-multiply throughput (MFU)",
    ),
)
"""Charts of SFT runs, which have neither rollouts nor rewards."""

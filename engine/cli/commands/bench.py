"""`bench`: time, gradient, memory and share of the hardware limit, optionally compared with TRL."""

import argparse
import asyncio
import tempfile
from pathlib import Path

from engine.bench.compare import Comparison, Growth, Report
from engine.bench.rival import environment
from engine.bench.suite import measure
from engine.bench.work import parse_shape
from engine.cli.commands import gpu_check
from engine.cli.terminal import Progress, say, say_json, table, warn
from engine.models import registry

SHAPES = ["256,64,8,2", "1024,64,8,1"]
ONLY_GPU = ("processor", "quick", "only")
NAMES = {"atelier": "Atelier", "trl_best": "TRL, best", "trl_defaults": "TRL, defaults"}


def run(arguments: argparse.Namespace) -> int:
    if arguments.gpu:
        return gpu_check.run(arguments)
    if given := [name for name in ONLY_GPU if getattr(arguments, name)]:
        warn(f"atelier bench: --{given[0]} needs --gpu.")
        return 2
    try:
        shapes = [parse_shape(text) for text in arguments.shape or SHAPES]
    except ValueError as error:
        warn(f"atelier bench: {error}.")
        return 2
    progress = Progress()
    show = warn if arguments.json else progress.show
    model = registry.find_model(arguments.model)
    trl = environment() if arguments.against else None
    with tempfile.TemporaryDirectory(prefix="atelier-bench-") as scratch:
        report: Report = asyncio.run(
            measure(
                model=model,
                shapes=shapes,
                dtype=arguments.dtype,
                repeats=arguments.repeats,
                trl=trl,
                growth=not arguments.no_growth,
                scratch=Path(scratch),
                say=show,
            )
        )
    progress.clear()
    if arguments.json:
        say_json(report)
    else:
        say(render(report))
    return 0


def render(report: Report) -> str:
    parts = [
        f"{report.model} · {report.dtype} · {report.device} · medians of {report.repeats} "
        "interleaved steps",
        "P/C/G/Q: prompt tokens, completion tokens, rollouts per group, groups.",
    ]
    for mode, comparisons in (("Replay", report.replay), ("Live", report.live)):
        for comparison in comparisons.values():
            parts += ["", f"{mode} {comparison.shape}", _contenders(comparison)]
            if comparison.gradient_error_vs_trl_best is not None:
                error = comparison.gradient_error_vs_trl_best
                parts.append(f"relative difference to TRL's gradient: {error:.1e}")
    for growth in report.growth:
        parts += ["", f"Scaling with {growth.name}", _growth(growth)]
    if turns := report.multi_turn:
        parts += [
            "",
            f"Multi-turn: {turns.turns} turns; tokens: prompt {turns.prompt}, "
            f"answer {turns.answer}, observation {turns.observation}; {turns.group} rollouts",
            f"one prefix tree {turns.tree_s:.1f} s, one row per turn {turns.rows_s:.1f} s: "
            f"{turns.ratio:.1f}× as long",
        ]
    return "\n".join(parts)


def _contenders(comparison: Comparison) -> str:
    ours = comparison.contenders["atelier"]
    ratios = {
        "atelier": "",
        "trl_best": _times(comparison.ratio_vs_trl_best),
        "trl_defaults": _times(comparison.ratio_vs_trl_defaults),
    }
    rows = [
        [
            NAMES[name],
            f"{one.seconds:.2f}",
            f"{one.sample_s:.2f}",
            f"{one.update_s:.2f}",
            ratios[name],
            f"{one.peak_bytes / 2**30:.1f}",
        ]
        for name, one in comparison.contenders.items()
    ]
    text = table(["", "step s", "sample s", "update s", "× ours", "peak GiB"], rows)
    limits = ", ".join(f"{name} {share:.0%}" for name, share in ours.limits.items())
    return f"{text}\nshare of this machine's peak: {limits}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.1f}×"


def _growth(growth: Growth) -> str:
    rows = [
        [shape, f"{sample:.2f}", f"{update:.2f}"]
        for shape, sample, update in zip(
            growth.shapes, growth.sample_s, growth.update_s, strict=True
        )
    ]
    return table(["P/C/G/Q", "sample s", "update s"], rows)

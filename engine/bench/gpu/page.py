"""Markdown page of a GPU report. Pure."""

from collections.abc import Sequence

from engine.bench.gpu.report import (
    CheckReport,
    GpuReport,
    Section,
    Table,
    gib,
    rate,
    seconds,
    times,
    tiny,
)

SECTIONS: dict[Section, tuple[str, str]] = {
    "machine": ("The machine", ""),
    "exactness": (
        "Exactness on this machine",
        "Kernels and rounding of a GPU differ from those of a CPU, so exactness is measured on "
        "each machine.",
    ),
    "runs": (
        "Real runs",
        "Each row is a run trained by a real engine process, as with `atelier train`.",
    ),
    "trl": (
        "Comparison with TRL's GRPOTrainer",
        "Both use the same weights, prompts and lengths; one step of Atelier and one of TRL "
        "alternate.",
    ),
    "cards": ("Multiple GPUs", ""),
}
MARKS = {"passed": "✓", "failed": "✗", "skipped": "–"}
DETAIL_LINES = 25


def page(report: GpuReport) -> str:
    parts = [*_head(report), *_failures(report), *_highlights(report), *_overview(report)]
    for section in SECTIONS:
        parts += _section(report, section)
    return "\n".join([*parts, *_skipped(report), *_repeat(report)]) + "\n"


def _head(report: GpuReport) -> list[str]:
    counts = [
        f"{len(found)} {state}"
        for state in ("passed", "failed", "skipped")
        if (found := report.of(state))  # type: ignore[arg-type]
    ]
    where = "GPU check on the CPU" if report.on_processor else "GPU check"
    words = [f"# {where} · {report.device}", ""]
    words += [f"**{', '.join(counts)}** in {_duration(report.seconds)}, {_day(report.at)}.", ""]
    if report.on_processor:
        words += [
            "> These checks ran on the CPU because of `--processor`. They show that the checks "
            "work, and say nothing about a GPU.",
            "",
        ]
    if report.quick:
        words += ["> `--quick`: small sizes. Fixed costs per step dominate the times.", ""]
    return words


def _failures(report: GpuReport) -> list[str]:
    words: list[str] = []
    for check in report.of("failed"):
        words += [f"**{check.title} failed.** {check.words}", ""]
        if check.detail:
            last = check.detail.strip().splitlines()[-DETAIL_LINES:]
            words += ["```", *(line.replace("```", "'''") for line in last), "```", ""]
    return ["## Failed checks", "", *words] if words else []


def _highlights(report: GpuReport) -> list[str]:
    rows: list[list[str]] = []
    for check in report.of("passed"):
        rows += _highlight(check)
    return ["## Summary", "", *_table(["", "", ""], rows), ""] if rows else []


def _highlight(check: CheckReport) -> list[list[str]]:
    f = check.figures
    match check.section:
        case "machine":
            peak = max(value for name, value in f.items() if name.endswith("_flops"))
            read = f["bandwidth_bytes_s"]
            return [["peak", f"{peak / 1e12:.3g} TFLOP/s", f"{read / 1e9:,.0f} GB/s memory read"]]
        case "exactness" if check.name == "gradients":
            cells = [f"{tiny(v)} in {n.split('_')[1]}" for n, v in f.items()]
            return [["gradient difference, trees vs. padded rows", *_two(cells)]]
        case "exactness" if check.name == "logprobs":
            cells = [f"{tiny(v)} nats, {n.split('_')[2]}" for n, v in f.items() if "_max_" in n]
            return [["largest log-prob gap, sampler vs. trainer", *_two(cells)]]
        case "runs":
            held = f" · {gib(f['held_bytes'])} GPU memory" if "held_bytes" in f else ""
            speed = f"{rate(f['sampled_tokens_per_s'])} tokens/s sampled"
            return [[check.title, f"{seconds(f['step_s'])} per step", speed + held]]
        case "trl":
            ratios = [times(v) for n, v in f.items() if n.endswith("trl_best_ratio")]
            return [
                [
                    check.title,
                    f"TRL takes {', '.join(ratios)} Atelier's time",
                    "with its best settings",
                ]
            ]
        case "cards":
            return [["two trainers", f"{times(f['speed_up_ratio'])} as fast as one", ""]]
        case _:
            return []


def _two(cells: Sequence[str]) -> list[str]:
    return [*cells, "", ""][:2]


def _overview(report: GpuReport) -> list[str]:
    rows = [
        [MARKS[c.state], f"`{c.name}`", _first_sentence(c), _duration(c.seconds)]
        for c in report.checks
        if c.state != "skipped"
    ]
    return ["## All checks", "", *_table(["", "check", "result", "took"], rows), ""]


def _first_sentence(check: CheckReport) -> str:
    return check.words if len(check.words) <= 160 else f"{check.words[:157]}…"


def _section(report: GpuReport, section: Section) -> list[str]:
    mine = [check for check in report.checks if check.section == section and check.tables]
    if not mine:
        return []
    title, words = SECTIONS[section]
    parts = [f"## {title}", ""] + ([words, ""] if words else [])
    for table in merged([table for check in mine for table in check.tables]):
        own = [] if table.title == "Machine" else [f"### {table.title}", ""]
        parts += [*own, *_table(table.head, table.rows), ""]
        parts += [table.note, ""] if table.note else []
    return parts + (_settings(mine) if section == "runs" else [])


def _settings(checks: Sequence[CheckReport]) -> list[str]:
    rows = [[f"`{c.name}`", c.facts["settings"]] for c in checks if "settings" in c.facts]
    head = ["check", "settings that differ from the sample project"]
    return ["### Settings of the runs", "", *_table(head, rows), ""]


def merged(tables: Sequence[Table]) -> list[Table]:
    """Merge tables with the same title and head, in order of first appearance."""
    found: dict[tuple[str, ...], Table] = {}
    for table in tables:
        key = (table.title, *table.head)
        before = found.get(key)
        rows = [*before.rows, *table.rows] if before else table.rows
        found[key] = table.model_copy(update={"rows": rows})
    return list(found.values())


def _skipped(report: GpuReport) -> list[str]:
    skipped = report.of("skipped")
    if not skipped:
        return []
    rows = [[f"`{check.name}`", check.title, check.words] for check in skipped]
    head = ["check", "title", "reason"]
    return ["## Skipped checks", "", *_table(head, rows), ""]


def _repeat(report: GpuReport) -> list[str]:
    packages = ", ".join(f"{name} {version}" for name, version in report.packages.items())
    commit = f", commit {report.commit}" if report.commit else ""
    return [
        "## Reproduce this report",
        "",
        "```",
        report.command,
        "```",
        "",
        f"Atelier {report.version}{commit}; Python {report.python}; {packages}.",
        f"Model: {report.model}.",
        *report.notes,
        "",
        "`--only NAME` repeats one check, `--model PATH` uses another model. `gpu-report.json` in "
        "the same folder has the figures of this page, and more.",
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _duration(value: float) -> str:
    return f"{value:.0f} s" if value < 90 else f"{int(value // 60)}:{int(value % 60):02d} min"


def _day(at: str) -> str:
    return at[:16].replace("T", ", ")

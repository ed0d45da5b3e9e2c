"""Facts of one model in words, for the panel beside the list. Free of I/O."""

import time

from engine.protocol.requests.models import LocalModel, ModelFacts, ModelFit
from studio.store.hub.rows import FITS, parameter_words
from studio.text import formatting

MOST_FILES = 6
"""Files that are listed by name."""
CHAT = {True: "yes", False: "no", None: formatting.ABSENT}
TOOLS = {True: "yes, with tools", False: "yes, without tools", None: "yes"}


def fact_values(facts: ModelFacts, local: LocalModel | None) -> list[tuple[str, str]]:
    """Return the facts as (name, value) in display order; unknown ones are shown as –."""
    about = facts.summary
    chat = TOOLS[facts.tools] if about.chat else CHAT[about.chat]
    context = f"{facts.context_tokens:,} tokens" if facts.context_tokens else formatting.ABSENT
    values = [
        ("Licence", about.licence or formatting.ABSENT),
        ("Parameters", parameter_words(about.parameters)),
        ("Architecture", about.architecture or formatting.ABSENT),
        ("Context", context),
        ("Chat format", chat),
    ]
    if about.downloads is not None:
        values.append(("Downloads", f"{formatting.short(about.downloads)} in 30 days"))
    if about.likes is not None:
        values.append(("Likes", formatting.short(about.likes)))
    if about.updated_at is not None:
        values.append(("Updated", time.strftime("%Y-%m-%d", time.localtime(about.updated_at))))
    if local is not None and local.path:
        values.append(("On disk", formatting.size(local.bytes)))
        if local.used_at is not None:
            used = time.strftime("%Y-%m-%d", time.localtime(local.used_at))
            values.append(("Last used", used))
        values.append(("Projects", ", ".join(local.projects) or "none"))
        values.append(("Runs", formatting.count(local.runs)))
    else:
        values.append(("Download", formatting.size(facts.download_bytes)))
    return values


def fit_words(fit: ModelFit) -> tuple[str, str]:
    """Return (sentence, tone): whether a model fits the chosen compute."""
    if fit.verdict is None:
        return f"Memory use is unknown. {fit.unknown}".strip(), "muted"
    words, tone = FITS[fit.verdict]
    return f"{words[:1].upper()}{words[1:]} on {fit.device}", tone


def fit_figures(fit: ModelFit) -> list[tuple[str, str]]:
    """Return the memory figures behind the verdict as (name, value): available memory, peaks (the
    deciding one last), then the parts of the peak. Empty if available memory is unknown."""
    if fit.room_bytes is None:
        return []
    values = [("Available", formatting.size(fit.room_bytes))]
    peaks = [("Peak", fit.peak_bytes), ("Peak in 4 bit", fit.peak_4bit_bytes)]
    if fit.verdict == "fits":
        peaks.reverse()
    values += [(name, formatting.size(peak)) for name, peak in peaks if peak is not None]
    parts = {part.name: max(part.sampling_bytes, part.training_bytes) for part in fit.parts}
    largest = sorted(parts.items(), key=lambda part: -part[1])
    return values + [(f"  {name}", formatting.size(size)) for name, size in largest if size]


def fit_note(fit: ModelFit) -> str:
    """Describe how the figures were computed, and with which settings; empty without figures."""
    if not fit.formula:
        return ""
    return f"{fit.formula} Forecast with {fit.settings}." if fit.settings else fit.formula


def file_lines(facts: ModelFacts) -> list[tuple[str, str]]:
    """Return the largest files as (name, size), and how many more there are."""
    shown = [(file.name, formatting.size(file.bytes)) for file in facts.files[:MOST_FILES]]
    rest = facts.files[MOST_FILES:]
    if rest:
        size = sum(file.bytes for file in rest)
        shown.append((formatting.plural(len(rest), "more file"), formatting.size(size)))
    return shown

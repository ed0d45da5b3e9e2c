"""Rows of the Models page: search results and models on this machine. Free of I/O."""

from dataclasses import dataclass

from engine.protocol.requests.models import FitVerdict, HubModel, LocalModel, ModelFacts
from studio.text import formatting

Chips = tuple[tuple[str, str], ...]
"""Chips as (text, tone)."""
FITS: dict[FitVerdict | None, tuple[str, str]] = {
    "fits": ("fits", "good"),
    "fits_4bit": ("fits in 4 bit", "warn"),
    "too_large": ("too large", "bad"),
}
KINDS = {
    "starter": "starter",
    "hub": "hub cache",
    "uploaded": "uploaded",
    "folder": "project folder",
}


@dataclass(frozen=True)
class ModelRow:
    """Row of a model: its name, a figure at the right, and chips below."""

    name: str
    title: str
    figure: str = ""
    chips: Chips = ()
    faint: bool = False
    """Whether it cannot be used as it is."""

    @property
    def spoken(self) -> str:
        """Text for screen readers."""
        chips = (words for words, _ in self.chips)
        return ", ".join(part for part in (self.title, self.figure, *chips) if part)


def parameter_words(parameters: int | None) -> str:
    """Format a number of parameters as model names do: 135M, 7.6B."""
    return formatting.short(parameters).replace("G", "B")


def fit_chip(facts: ModelFacts | None) -> tuple[str, str] | None:
    """Return text and tone of the chip that says whether a model fits in memory; None if that is
    unknown or the model has a problem."""
    return FITS.get(facts.fit.verdict) if facts and not facts.problem else None


def result_row(model: HubModel, facts: ModelFacts | None) -> ModelRow:
    """Return the row of a search result; `facts` are None until they are read."""
    size = facts.download_bytes if facts else model.weight_bytes
    chips: list[tuple[str, str]] = []
    if model.path:
        chips.append(("on this machine", "accent"))
    if fit := fit_chip(facts):
        chips.append(fit)
    if facts and facts.problem and not model.gated:
        chips.append(("cannot be trained", "bad"))
    if model.gated:
        chips.append(("gated", "warn"))
    if model.parameters:
        chips.append((f"{parameter_words(model.parameters)} parameters", "muted"))
    if model.licence:
        chips.append((model.licence, "muted"))
    if facts and facts.tools:
        chips.append(("tools", "muted"))
    elif model.chat:
        chips.append(("chat", "muted"))
    if model.downloads is not None:
        chips.append((f"{formatting.short(model.downloads)} downloads", "faint"))
    if not chips:
        chips.append(("nothing reported", "faint"))
    unusable = bool(facts and facts.problem)
    return ModelRow(model.id, model.id, formatting.size(size), tuple(chips), unusable)


def local_row(model: LocalModel) -> ModelRow:
    """Return the row of a model on this machine."""
    chips: list[tuple[str, str]] = []
    if model.path is None:
        chips.append((f"downloads {formatting.size(model.download_bytes)}", "muted"))
    elif not model.weights:
        chips.append(("tokenizer only", "muted"))
    if model.active_runs:
        chips.append(("in use", "accent"))
    if model.problem:
        chips.append(("cannot be trained", "bad"))
    chips.append((KINDS[model.kind], "muted"))
    if model.parameters:
        chips.append((f"{parameter_words(model.parameters)} parameters", "muted"))
    if model.runs:
        chips.append((formatting.plural(model.runs, "run"), "muted"))
    if model.projects:
        chips.append((formatting.plural(len(model.projects), "project"), "muted"))
    title = model.title if model.kind in ("starter", "folder") else model.name
    size = formatting.size(model.bytes) if model.path else ""
    return ModelRow(model.name, title, size, tuple(chips), bool(model.problem))


def disk_words(free_bytes: int, used_bytes: int) -> str:
    """Describe the disk: space that models take, and free space."""
    used, free = formatting.size(used_bytes), formatting.size(free_bytes)
    return f"{used} of models · {free} free"


def delete_words(model: LocalModel) -> str:
    """Describe what deleting a model means, for the confirmation."""
    words = [f"This frees {formatting.size(model.bytes)} of disk space."]
    if model.projects:
        names = ", ".join(model.projects[:3])
        words.append(f"Projects that use the model: {names}.")
    if model.runs:
        runs = formatting.plural(model.runs, "run needs", "runs need")
        words.append(f"{runs} the model to be resumed or exported.")
    again = "copied" if model.kind == "uploaded" else "downloaded"
    words.append(f"The model can be {again} again.")
    return " ".join(words)

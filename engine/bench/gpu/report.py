"""Report of a GPU check as one object; `page` renders it as Markdown."""

from typing import Any, Literal

from pydantic import Field

from engine.protocol.base import Value

State = Literal["passed", "failed", "skipped"]
Section = Literal["machine", "exactness", "runs", "trl", "cards"]


class Table(Value):
    """Table of a section; tables with the same title and head are merged."""

    title: str
    head: list[str]
    rows: list[list[str]]
    note: str = ""
    """Explanation for readers, in whole sentences."""


class Outcome(Value):
    """Outcome of one check."""

    state: State
    words: str
    """Result in one sentence: what came out, why it failed, or what it needs."""
    figures: dict[str, float] = Field(default_factory=dict)
    """Measurements by documented name; the last word is the unit (`_s`, `_bytes`, `_share`,
    `_nats`)."""
    facts: dict[str, str] = Field(default_factory=dict)
    """Values that are not numbers: names, versions, precisions."""
    tables: list[Table] = Field(default_factory=list)
    detail: str = ""
    """Last output of a failed process."""


class CheckReport(Outcome):
    name: str
    title: str
    section: Section
    seconds: float


class GpuReport(Value):
    """Complete report, checks in the order of the plan."""

    at: str
    """Time in ISO 8601 with time zone."""
    command: str
    """Command line that repeats the report."""
    version: str
    commit: str
    """Git commit; empty without a repository."""
    model: str
    device: str
    on_processor: bool
    """Whether the checks ran on the CPU by request."""
    quick: bool
    seconds: float
    python: str
    packages: dict[str, str]
    """Installed packages of the checked engine, with versions."""
    notes: list[str]
    checks: list[CheckReport]

    def of(self, *states: State) -> list[CheckReport]:
        return [check for check in self.checks if check.state in states]


class Job(Value):
    """Input of one check."""

    function: str
    """`module:function`, called with the job and a callback for progress."""
    arguments: dict[str, Any]
    model: str
    """Folder of the model."""
    scratch: str
    """Empty folder for this check."""
    answer: str
    """File to write the outcome to."""
    on_processor: bool
    quick: bool
    trl: str = ""
    """Python with TRL; empty if there is none."""
    vllm: bool = False
    """Whether this engine can sample with vLLM."""


NONE = "–"


def seconds(value: float | None) -> str:
    if value is None:
        return NONE
    if value < 0.0995:
        return f"{value * 1000:.3g} ms"
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def gib(value: float | None) -> str:
    return NONE if value is None else f"{value / 2**30:.2f} GiB"


def share(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.1%}" if value < 0.0995 else f"{value:.0%}"


def rate(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}".replace(",", " ")


def tiny(value: float | None) -> str:
    """Format a difference with its order of magnitude, such as 1.2e-05; a dash for None."""
    if value is None:
        return NONE
    return "0" if value == 0 else f"{value:.1e}"


def times(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}×"


def plain(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}".replace("-", "−")

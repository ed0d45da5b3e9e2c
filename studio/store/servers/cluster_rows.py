"""Rows of clusters and results of their connection tests, as text. Free of I/O."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from engine.protocol.config.project import ProjectConfig
from engine.protocol.requests.clusters import ClusterClient, ClusterReport, ClusterView
from studio.text import formatting

CLIENTS: tuple[tuple[ClusterClient, str], ...] = (
    ("tinker", "Tinker (hosted service)"),
    ("tinker-json", "Tinker 0.24 (SkyRL 0.3)"),
)
"""SDKs with their labels."""
MOST_MODELS = 12
"""Number of models that are listed."""


@dataclass(frozen=True)
class ClusterRow:
    """Row of one cluster; `dot` is a state of the status dot."""

    name: str
    words: str
    dot: str
    facts: str
    problem: str = ""


def row_of(view: ClusterView, testing: bool) -> ClusterRow:
    """Return the row of a cluster in Settings; `testing`: a connection test is running."""
    words, dot, problem = "not tested", "none", ""
    if testing:
        words, dot = "testing the connection", "connecting"
    elif view.report is not None:
        words = f"serves {formatting.plural(len(view.report.models), 'model')}"
        dot = "connected"
    elif view.problem is not None:
        words, dot = "connection failed", "gone"
        problem = f"{view.problem.message} {view.problem.hint}".strip()
    sdk = view.report.client if view.report else dict(CLIENTS)[view.spec.client]
    return ClusterRow(view.spec.name, words, dot, f"{view.spec.address} · {sdk}", problem)


def models_words(report: ClusterReport) -> str:
    """Return the models that a cluster serves, one per line with its maximum context."""
    lines = [
        f"{model.name} · {model.max_context:,} tokens" if model.max_context else model.name
        for model in report.models[:MOST_MODELS]
    ]
    if more := len(report.models) - MOST_MODELS:
        lines += [f"and {more} more"] if more > 0 else []
    return "\n".join(lines)


def step_tokens(config: ProjectConfig) -> int:
    """Return the largest number of tokens that one turn of all rollouts of a step samples: groups ×
    rollouts × tokens per response."""
    return config.train.groups * config.train.group_size * config.train.max_tokens


def sending_words(view: ClusterView | None, name: str, config: ProjectConfig) -> tuple[str, str]:
    """Return what training on a cluster (`view` None: not in the list) sends to its server, as a
    sentence and as a short line for the preflight check."""
    if view is None:
        return f"There is no cluster called {name}. Add it in Settings.", f"No cluster {name}"
    host = urlsplit(view.spec.address).hostname or view.spec.address
    train = config.train
    amount = (
        f"A step samples up to {formatting.count(step_tokens(config))} tokens per turn there "
        f"({train.groups} groups × {train.group_size} rollouts × {train.max_tokens:,} tokens); "
        "prompts and responses are sent."
    )
    words = f"Tokens leave this machine: {name} samples and trains at {host}. {amount}"
    return words, f"Tokens are sent to {host}"

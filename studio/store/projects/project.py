"""Open project: its view from the engine, its problems, and the counts of its scenarios."""

import shlex

from engine.protocol.problems import Problem
from engine.protocol.records.runs import ProjectView, Split, SplitInfo


class ProjectStore:
    """State of the open project, if any."""

    def __init__(self) -> None:
        self.view: ProjectView | None = None

    @property
    def path(self) -> str:
        """Return the folder of the open project; empty without one."""
        return self.view.path if self.view else ""

    @property
    def name(self) -> str:
        return self.view.name if self.view else ""

    def open(self, view: ProjectView) -> None:
        self.view = view

    def close(self) -> None:
        self.view = None

    def split(self, split: Split) -> SplitInfo | None:
        """Return file, number of scenarios and problems of a split; None without a project or if it
        has no such split."""
        matches = (info for info in (self.view.splits if self.view else ()) if info.split == split)
        return next(matches, None)

    @property
    def problems(self) -> list[Problem]:
        """All problems of the project: those of project.toml, then those of the scenarios."""
        if self.view is None:
            return []
        return [*self.view.problems, *(p for info in self.view.splits for p in info.problems)]

    @property
    def outside(self) -> bool:
        """Whether an external script makes the rollouts, not the engine."""
        config = self.view.config if self.view else None
        return config is not None and config.agent.source == "outside"

    @property
    def trainable(self) -> bool:
        """Return whether Train can start: trusted, without problems, no external script."""
        view = self.view
        ready = view is not None and view.config is not None and view.trusted
        return ready and not self.problems and not self.outside

    def command(self, cluster: str = "") -> str:
        """Shell command that trains the project without the studio, on the cluster of this name if
        project.toml does not select it; empty without a project."""
        if self.view is None:
            return ""
        named = self.view.config.backend.cluster if self.view.config else ""
        option = f" --cluster {cluster}" if cluster != named and cluster else ""
        return f"atelier train {shlex.quote(self.view.path)}{option}"

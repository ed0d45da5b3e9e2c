"""How a person names a checkpoint: `RUN@STEP`, `RUN@best`, `RUN@newest`, or just `RUN`."""

from pathlib import Path
from typing import NamedTuple

from engine import checkpoint
from engine.protocol.problems import Refused
from engine.protocol.records import Checkpoint, RunSpec
from engine.retention import Known
from engine.run import DATABASE, SPEC, read_spec
from engine.store.reader import RunReader


class Found(NamedTuple):
    """A checkpoint and its run; None stands for the weights before the first update."""

    folder: Path
    spec: RunSpec
    checkpoint: Checkpoint | None

    @property
    def step(self) -> int:
        return self.checkpoint.step if self.checkpoint else 0

    @property
    def name(self) -> str:
        return f"{self.spec.name}@{self.step}"


def find_run(project: Path, name: str) -> tuple[Path, RunSpec]:
    """By id, by the end of an id, or by name (the newest of that name). Raises Refused."""
    specs = []
    for file in sorted(project.glob(f"runs/*/{SPEC}"), reverse=True):
        spec = read_spec(file.parent)
        specs.append(spec)
        if spec.name == name or (len(name) >= 6 and spec.id.endswith(name.upper())):
            return file.parent, spec
    known = ", ".join(spec.name for spec in specs[:5]) or "none yet"
    raise Refused.of(
        "run.unknown",
        f"{project.name} has no run called {name}.",
        f"Its newest are: {known}.",
        where=str(project),
    )


def find_checkpoint(project: Path, reference: str) -> Found:
    """Raises Refused where there is none, or where its files are damaged.

    Step 0 is always there: the weights that the run began with.
    """
    name, _, which = reference.partition("@")
    folder, spec = find_run(project, name)
    reader = RunReader(folder / DATABASE)
    try:
        kept, known = reader.checkpoints(), Known(reader)
    finally:
        reader.close()
    chosen = _choose(reference, which, kept, known)
    if chosen and not checkpoint.verify(folder / chosen.path):
        raise Refused.of(
            "checkpoint.damaged",
            f"The files of {spec.name}@{chosen.step} are missing or not what was written.",
            "Take another checkpoint.",
            where=str(folder / chosen.path),
        )
    return Found(folder, spec, chosen)


def _choose(reference: str, which: str, kept: list[Checkpoint], known: Known) -> Checkpoint | None:
    if which == "0" and not any(one.step == 0 for one in kept):
        return None
    if which in ("", "newest"):
        chosen = kept[-1:]
    elif which == "best":
        measured = [one for one in kept if one.step in known.validations]
        measured.sort(key=lambda one: (-known.validations[one.step].mean, one.step))
        chosen = measured[:1]
    else:
        chosen = [one for one in kept if str(one.step) == which]
    if not chosen:
        steps = ", ".join(str(one.step) for one in kept) or "none"
        raise Refused.of(
            "checkpoint.unknown",
            f"There is no checkpoint {reference}.",
            f"Kept of this run are steps: {steps}. Write RUN@STEP, RUN@best or RUN@newest.",
        )
    return chosen[0]

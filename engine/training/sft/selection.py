"""Selection of stored trajectories as demonstrations (rejection sampling): the best of each
scenario, or all above a threshold. Unscored ones are rejected, and rejections are counted."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

from engine.protocol.problems import ConfigError
from engine.protocol.records.demonstrations import SelectDemonstrations, Selection
from engine.protocol.records.runs import TRAINING_KINDS, RunSpec, TrajectorySummary
from engine.protocol.requests.runs import TrajectoryQuery
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import read_spec, run_reader
from engine.training.labels.gold import line_of, replace_lines
from engine.trust.files import project_file

RULE = re.compile(r"(best|all|above)(?::(-?\d+(?:\.\d+)?))?")
PAGE = 1000


class Rule(NamedTuple):
    """Selection rule: the `best` trajectory per scenario or `all`, with at least this reward."""

    which: Literal["best", "all"]
    least: float | None = None


def read_rule(text: str) -> Rule:
    """Parse a selection rule: `best` (of each scenario), `all`, `best:0.5` or `above:0.8` (with a
    minimum reward). Raises ConfigError."""
    found = RULE.fullmatch(text.strip())
    which, least = (found[1], found[2]) if found else ("", None)
    if not which or (which == "above") != (least is not None and which != "best"):
        raise ConfigError.of(
            "config.bad_keep",
            f"{text!r} is not a selection rule.",
            "Write best, best:0.5 (the best of each scenario, with a reward of at least 0.5), "
            "all, or above:0.8.",
        )
    return Rule("best" if which == "best" else "all", None if least is None else float(least))


def choose(
    attempts: Sequence[TrajectorySummary], rule: Rule
) -> tuple[list[TrajectorySummary], dict[str, int]]:
    """Return the trajectories that a rule selects (for equal rewards the earlier one), and the
    number of the others by reason."""
    left_out: Counter[str] = Counter()
    good = []
    for one in attempts:
        if reason := _unfit(one, rule):
            left_out[reason] += 1
        else:
            good.append(one)
    if rule.which == "all":
        return good, dict(left_out)
    best: dict[str, TrajectorySummary] = {}
    for one in good:
        known = best.get(one.scenario_id)
        if known is None or (one.reward or 0.0) > (known.reward or 0.0):
            best[one.scenario_id] = one
    if others := len(good) - len(best):
        left_out["not the best of its scenario"] = others
    return list(best.values()), dict(left_out)


def _unfit(one: TrajectorySummary, rule: Rule) -> str:
    """Reason against a trajectory as a demonstration; empty if it can be used."""
    if one.reward is None:
        if one.awaits_judge:
            return "unscored: not judged yet"
        return f"unscored: {one.problem.code if one.problem else 'no reward'}"
    if one.truncated:
        return "cut off by a token limit"
    if not one.turns:
        return "no response of the model"
    if rule.least is not None and one.reward < rule.least:
        return f"reward below {rule.least:g}"
    return ""


def demonstrate(folder: Path, request: SelectDemonstrations) -> Selection:
    """Write selected trajectories of the run in `folder` to the demonstrations file `request.file`
    of its project, if one is named; they replace earlier lines of this run. Without a split, a
    training run contributes its training trajectories. Raises ConfigError, and StoreError if the
    run cannot be read."""
    rule, spec, project = read_rule(request.keep), read_spec(folder), folder.parents[1]
    if request.split is None and spec.kind in TRAINING_KINDS:
        request = request.model_copy(update={"split": "train"})
    with run_reader(folder) as reader:
        attempts = list(_attempts(reader, request))
        kept, left_out = choose(attempts, rule)
        if request.file:
            lines = [_line(reader, spec, one) for one in kept]
            replace_lines(project_file(project, request.file, "file"), f"{spec.id}/", lines)
    rewards = [one.reward for one in kept if one.reward is not None]
    return Selection(
        kept=len(kept),
        scenarios=len({one.scenario_id for one in kept}),
        of=len({one.scenario_id for one in attempts}),
        left_out=left_out,
        mean=fmean(rewards) if rewards else None,
        file=request.file,
    )


def words_of(found: Selection) -> str:
    """Summary of a selection in one line."""
    reasons = ", ".join(f"{count} {reason}" for reason, count in found.left_out.items())
    where = f" in {found.file}" if found.file else ""
    mean = "" if found.mean is None else f", mean reward {found.mean:.2f}"
    return (
        f"{found.kept} demonstrations{where} from {found.scenarios} of {found.of} scenarios{mean}."
        + (f" Left out: {reasons}." if reasons else "")
    )


def _attempts(reader: RunReader, request: SelectDemonstrations) -> Iterator[TrajectorySummary]:
    query = TrajectoryQuery(
        split=request.split,
        step=request.step,
        contestant=request.contestant or None,
        descending=False,
        limit=PAGE,
    )
    while page := reader.trajectories(query).items:
        yield from page
        query = query.model_copy(update={"offset": query.offset + len(page)})


def _line(reader: RunReader, spec: RunSpec, one: TrajectorySummary) -> str:
    source = {
        "run": spec.name,
        "model": one.provider or one.contestant or spec.config.model.name,
        "scenario": one.scenario_id,
        "reward": one.reward,
    }
    line = json.loads(line_of(f"{spec.id}/", reader.trajectory(one.id)))
    return json.dumps({**line, "source": source}, ensure_ascii=False)

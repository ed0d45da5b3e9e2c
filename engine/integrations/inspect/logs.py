"""Writes a stored evaluation as logs of Inspect, one file per model and system prompt.

A log is a ZIP archive (`.eval`) with a header, a file per sample, and summaries; the form is that
of inspect_ai 0.3 (log format version 2), which reads and shows them.
"""

import hashlib
import json
import math
import os
import re
import statistics
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from engine.evaluation.stored import stored_scenarios
from engine.integrations.inspect.samples import REWARD, Json, iso_time, sample_of, summary_of
from engine.protocol.problems import Refused, StoreError
from engine.protocol.records.comparison import InspectLogs
from engine.protocol.records.runs import RunSpec, Scenario
from engine.protocol.requests.evaluation import Entry, EvaluationPlan
from engine.storage.run_db.reader import RunReader

VERSION = 2
ID_CHARACTERS = 22
MOST_IN_MEMORY = 2**24
UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
UNSAFE_ID = re.compile(r"[/\\\x00-\x1f]")


class Source(NamedTuple):
    """A stored evaluation."""

    reader: RunReader
    spec: RunSpec
    plan: EvaluationPlan
    scenarios: Sequence[Scenario]
    names: Mapping[str, str]
    """Id of a scenario → id of its sample."""


def write_logs(reader: RunReader, spec: RunSpec, folder: Path, target: Path) -> list[Path]:
    """Write the evaluation `spec`, whose run folder is `folder`, as logs into the folder `target`;
    returns their files. Raises Refused if the run is no evaluation, StoreError if a file exists or
    cannot be written."""
    source = open_source(reader, spec, folder)
    written = []
    try:
        target.mkdir(parents=True, exist_ok=True)
        for entry in source.plan.entries:
            file = target / file_name(spec, entry)
            with tempfile.NamedTemporaryFile(dir=target, prefix=".log-") as scratch:
                write_log(source, entry, scratch)
                os.link(scratch.name, file)
            file.chmod(0o644)
            written.append(file)
    except OSError as error:
        raise StoreError.of(
            "export.not_written",
            f"The logs could not be written: {error.strerror or error}.",
            "Choose a folder that has none of these logs, with free disk space.",
            where=str(target),
        ) from error
    return written


def log_names(reader: RunReader, spec: RunSpec, folder: Path) -> InspectLogs:
    """Names of the logs of an evaluation. Raises Refused if the run is no evaluation."""
    source = open_source(reader, spec, folder)
    return InspectLogs(names=[file_name(spec, entry) for entry in source.plan.entries])


def log_content(reader: RunReader, spec: RunSpec, folder: Path, number: int) -> bytes:
    """Log with the place `number` in `log_names`. Raises Refused if there is none."""
    source = open_source(reader, spec, folder)
    if not 0 <= number < len(source.plan.entries):
        raise Refused.of("run.no_log", f"{spec.name} has no log {number}.")
    with tempfile.SpooledTemporaryFile(MOST_IN_MEMORY) as file:
        write_log(source, source.plan.entries[number], file)
        file.seek(0)
        return file.read()


def write_log(source: Source, entry: Entry, file: IO[bytes]) -> None:
    """Write the log of one model and system prompt, one sample in memory at a time."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members(source, entry):
            archive.writestr(name, text)
    file.flush()


def open_source(reader: RunReader, spec: RunSpec, folder: Path) -> Source:
    """Source of the logs of an evaluation. Raises Refused if the run is no evaluation."""
    if spec.evaluation is None:
        raise Refused.of(
            "run.no_evaluation",
            f"{spec.name} is not an evaluation.",
            "Start an evaluation: atelier eval PROJECT.",
        )
    scenarios = stored_scenarios(folder)
    names: dict[str, str] = {}
    for number, scenario in enumerate(scenarios):
        name = UNSAFE_ID.sub("_", scenario.id)
        names[scenario.id] = name if name == scenario.id else f"{name}#{number}"
    return Source(reader, spec, spec.evaluation, scenarios, names)


def file_name(spec: RunSpec, entry: Entry) -> str:
    """Name of a log as Inspect writes it: time, task and id, with the model in the task."""
    time = iso_time(math.floor(spec.started_at)).replace(":", "-").replace("+", "-")
    words = UNSAFE.sub("-", f"{spec.project}-{entry.label}").strip("-")
    return f"{time}_{words}_{_id(spec.id, entry.label)}.eval"


def members(source: Source, entry: Entry) -> Iterator[tuple[str, str]]:
    """Files of the log of one model and system prompt: name and JSON text, one sample at a time."""
    start = {"version": VERSION, "eval": _spec(source, entry), "plan": _plan()}
    yield "_journal/start.json", _json(start)
    summaries: list[Json] = []
    scores: dict[str, dict[str, list[float]]] = {}
    usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    for sample in samples(source, entry):
        name = sample["id"]
        yield f"samples/{name}_epoch_{sample['epoch']}.json", _json(sample)
        summaries.append(summary_of(sample))
        for part, score in sample["scores"].items():
            scores.setdefault(part, {}).setdefault(name, []).append(score["value"])
        for one in sample["model_usage"].values():
            usage = {key: value + one[key] for key, value in usage.items()}
    means = {
        part: {name: statistics.fmean(values) for name, values in by_sample.items()}
        for part, by_sample in scores.items()
    }
    yield "_journal/summaries/1.json", _json(summaries)
    yield "summaries.json", _json(summaries)
    yield "reductions.json", _json([_reduction(part, of) for part, of in means.items()])
    total = source.plan.scenarios * source.plan.attempts
    ended = max((one.get("completed_at", "") for one in summaries), default="")
    yield (
        "header.json",
        _json(
            start
            | {
                "status": "success" if len(summaries) == total else "cancelled",
                "results": _results(means, summaries, total),
                "stats": {
                    "started_at": iso_time(source.spec.started_at),
                    "completed_at": ended,
                    "model_usage": {model_name(entry): usage},
                    "role_usage": {},
                },
                "invalidated": False,
            }
        ),
    )


def samples(source: Source, entry: Entry) -> Iterator[Json]:
    """Samples of one model and system prompt, in order of scenarios and attempts."""
    reader, plan = source.reader, source.plan
    first = plan.entries.index(entry) * plan.attempts
    by_id = {one.id: one for one in source.scenarios}
    rows = [row for row in reader.summaries_of("validation", 0) if row.contestant == entry.label]
    for row in sorted(rows, key=lambda row: (row.group, row.index)):
        one = reader.trajectory(row.id)
        yield sample_of(
            one,
            by_id[row.scenario_id],
            source.names[row.scenario_id],
            row.index - first + 1,
            model_name(entry),
            reader.verdicts([row.id]),
        )


def model_name(entry: Entry) -> str:
    """Name of a model as Inspect writes it: provider, and name."""
    one = entry.contestant
    return one.model if one.kind == "provider" else f"atelier/{one.name}"


def _spec(source: Source, entry: Entry) -> Json:
    spec, plan = source.spec, source.plan
    variant = {"system_prompt": entry.variant.name} if entry.variant else {}
    contestant = entry.contestant.model_dump(mode="json", include={"kind", "model", "step"})
    return {
        "eval_id": _id(spec.id, entry.label, "eval"),
        "run_id": _id(spec.id),
        "created": iso_time(spec.started_at),
        "task": spec.project,
        "task_id": _id(spec.id, entry.label),
        "task_version": 0,
        "task_args": variant,
        "task_args_passed": variant,
        "dataset": {
            "name": plan.source,
            "samples": plan.scenarios,
            "sample_ids": list(source.names.values()),
            "shuffled": False,
        },
        "model": model_name(entry),
        "model_generate_config": {},
        "model_args": {},
        "config": {"epochs": plan.attempts, "epochs_reducer": ["mean"], "fail_on_error": False},
        "packages": {},
        "metadata": {"run": spec.name, "seed": plan.seed, "contestant": contestant},
        "scorers": [],
    }


def _plan() -> Json:
    return {"name": "plan", "steps": [{"solver": "agent", "params": {}}], "config": {}}


def _results(means: Mapping[str, Mapping[str, float]], summaries: list[Json], total: int) -> Json:
    scored = sum("error" not in one for one in summaries)
    return {
        "total_samples": total,
        "completed_samples": scored,
        "scores": [_score(part, list(of.values())) for part, of in means.items()],
        "headline": {"scorer": REWARD, "score": REWARD, "metric": "mean"} if means else None,
    }


def _score(part: str, values: Sequence[float]) -> Json:
    """Result of a reward part over the means of its samples: their mean, and its standard error
    s/√n with n - 1 in the variance (0 for a single sample), as in Inspect's `stderr`."""
    count = len(values)
    error = statistics.stdev(values) / math.sqrt(count) if count > 1 else 0.0
    metrics = {"mean": statistics.fmean(values), "stderr": error}
    return {
        "name": part,
        "scorer": part,
        "scored_samples": count,
        "unscored_samples": 0,
        "params": {},
        "metrics": {k: {"name": k, "value": value, "params": {}} for k, value in metrics.items()},
    }


def _reduction(part: str, means: Mapping[str, float]) -> Json:
    rows = [{"value": value, "history": [], "sample_id": name} for name, value in means.items()]
    return {"scorer": part, "reducer": "mean", "samples": rows}


def _id(*words: str) -> str:
    """Id of fixed length, the same for the same words."""
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:ID_CHARACTERS]


def _json(value: Iterable[Any] | Json) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)

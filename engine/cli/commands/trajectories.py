"""`trajectories`: the rows of a run folder that match a filter; whole records with --json, or in a
file with --jsonl, or logs of Inspect with --inspect. No engine needed."""

import argparse
from pathlib import Path

from engine.cli.run_lookup import find_run_folder, reading
from engine.cli.terminal import duration, figure, say, say_json, table
from engine.integrations.inspect.logs import write_logs
from engine.protocol.problems import StoreError
from engine.protocol.records.runs import TrajectorySummary
from engine.protocol.requests.runs import ExportTrajectories, TrajectoryQuery
from engine.storage.run_db.reader import RunReader
from engine.storage.run_folder.run import read_spec


def run(arguments: argparse.Namespace) -> int:
    with reading(arguments.run) as reader:
        if arguments.inspect:
            _write_logs(reader, arguments)
            return 0
        if arguments.jsonl:
            _export(reader, arguments)
            return 0
        page = reader.trajectories(query_of(arguments))
        whole = [reader.trajectory(row.id) for row in page.items] if arguments.json else []
    for one in whole:
        say_json(one)
    if not arguments.json:
        say(f"{page.total} trajectories, {len(page.items)} shown")
        say(table(HEADS, [_row(one) for one in page.items]))
    return 0


HEADS = ("id", "step", "reward", "advantage", "turns", "tokens", "time", "scenario")


def _row(one: TrajectorySummary) -> tuple[str, ...]:
    trouble = one.problem.message if one.problem else ""
    return (
        one.id,
        str(one.step),
        figure(one.reward) if one.reward is not None else "unscored",
        figure(one.advantage),
        str(one.turns),
        str(one.sampled_tokens),
        duration(one.duration_s),
        " · ".join(filter(None, (one.contestant, one.title, trouble))),
    )


def query_of(arguments: argparse.Namespace) -> TrajectoryQuery:
    return TrajectoryQuery(
        split=arguments.split,
        step=arguments.step,
        state="unscored" if arguments.unscored else "all",
        filter=arguments.filter,
        limit=min(arguments.limit, 1000),
    )


def _write_logs(reader: RunReader, arguments: argparse.Namespace) -> None:
    """Write an evaluation as logs of Inspect. Raises Refused for other runs, StoreError if a file
    exists or cannot be written."""
    folder = find_run_folder(arguments.run)
    target = Path(arguments.inspect).expanduser()
    for file in write_logs(reader, read_spec(folder), folder, target):
        say(f"{file} written")
    say(f"Show them: inspect view --log-dir {arguments.inspect}")


def _export(reader: RunReader, arguments: argparse.Namespace) -> None:
    """Write all matches to a file, or to standard output for `-`. Raises StoreError if the file
    cannot be written."""
    request = ExportTrajectories.model_validate(query_of(arguments).model_dump())
    ids = reader.exported_ids(request)
    run_id = read_spec(find_run_folder(arguments.run)).id
    lines = (reader.exported(run_id, one, arguments.tokens) for one in ids)
    if arguments.jsonl == "-":
        for line in lines:
            say_json(line)
        return
    try:
        with Path(arguments.jsonl).expanduser().open("w", encoding="utf-8") as file:
            file.writelines(line.model_dump_json() + "\n" for line in lines)
    except OSError as error:
        raise StoreError.of(
            "export.not_written",
            f"The trajectories could not be written: {error.strerror or error}.",
            "Choose a file in an existing folder with free disk space.",
            where=arguments.jsonl,
        ) from error
    say(f"{len(ids)} trajectories written to {arguments.jsonl}")

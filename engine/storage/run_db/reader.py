"""Reading a run.db: events from a seq, pages of trajectories, groups. Everything sorted in SQL."""

import threading
from collections.abc import Collection, Sequence
from pathlib import Path

import apsw

from engine.protocol.events.run import Event, UnknownEvent, decode
from engine.protocol.problems import Refused, in_one_line
from engine.protocol.records.curves import CurvePage, CurveQuery
from engine.protocol.records.judging import Call, Verdict, chief_verdict
from engine.protocol.records.labels import Label
from engine.protocol.records.runs import (
    Checkpoint,
    GroupSummary,
    Split,
    Trajectory,
    TrajectorySummary,
)
from engine.protocol.requests.runs import (
    ExportTrajectories,
    FilterNames,
    GroupPage,
    Siblings,
    TrajectoryFacts,
    TrajectoryLine,
    TrajectoryPage,
    TrajectoryQuery,
    TrajectoryRow,
)
from engine.storage.run_db.curves import read_curves
from engine.storage.run_db.filters import UNSCORED, query_sql
from engine.storage.run_db.packed import parse_record, unpack_record, unpacked_text
from engine.storage.run_db.review import ReviewRows, read_review_rows
from engine.storage.run_db.schema import damaged, open_reader

ATTEMPT_KEY = "attempt:"
"""Prefix of the keys of model calls by rollouts, as opposed to calls by judges."""

SORTS = {
    "recent": "number",
    "step": "step",
    "title": "title",
    "reward": "reward",
    "advantage": "advantage",
    "turns": "turns",
    "tokens": "tokens",
    "duration": "duration",
}


MOST_NAMES = 200
"""Maximum number of names of one kind that the completion of filters offers."""
MOST_TOGETHER = 2**27
"""Maximum total size of the records of one group in bytes."""


class RunReader:
    """Read-only connection to a run.db; callable from any thread, one call at a time."""

    def __init__(self, file: Path) -> None:
        """Open the database. This and all other methods raise StoreError if it is damaged."""
        self._file = file
        self._db = open_reader(file)
        self._one_at_a_time = threading.Lock()

    def close(self) -> None:
        with self._one_at_a_time:
            self._db.close()

    def events(self, after: int = 0, limit: int = 2000) -> list[str]:
        """Up to `limit` stored events with a `seq` above `after`, in order, as JSON lines."""
        sql = "SELECT body FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
        return [str(row[0]) for row in self._rows(sql, (after, limit))]

    def events_of(self, *kinds: str) -> list[Event | UnknownEvent]:
        """All events of these kinds, such as `step.finished`, in order."""
        marks = ", ".join("?" * len(kinds))
        sql = f"SELECT body, seq FROM events WHERE kind IN ({marks}) ORDER BY seq"
        return [_event(*row) for row in self._rows(sql, kinds)]

    def events_after(
        self, after: int, kinds: Sequence[str], limit: int
    ) -> list[Event | UnknownEvent]:
        """Return up to `limit` events of these kinds with a `seq` above `after`, in order."""
        marks = ", ".join("?" * len(kinds))
        sql = (
            f"SELECT body, seq FROM events WHERE kind IN ({marks}) AND seq > ? ORDER BY seq LIMIT ?"
        )
        return [_event(*row) for row in self._rows(sql, (*kinds, after, limit))]

    def count_after(self, after: int, kinds: Sequence[str]) -> int:
        """Number of events of these kinds with a `seq` above `after`."""
        marks = ", ".join("?" * len(kinds))
        sql = f"SELECT count(*) FROM events WHERE kind IN ({marks}) AND seq > ?"
        return self._value(sql, (*kinds, after))

    def last_seq(self) -> int:
        """Return the `seq` of the last event; 0 if there is none."""
        last = self._value("SELECT coalesce(max(seq), 0) FROM events")
        if last < 0:
            raise damaged(None, f"the last event has the number {last}")
        return last

    def counts(self) -> tuple[int, int]:
        """Number of trajectories, and of unscored ones that do not wait for the judge."""
        unscored = f"SELECT count(*) FROM trajectories WHERE {UNSCORED}"
        return self._value("SELECT count(*) FROM trajectories"), self._value(unscored)

    def trajectories(self, query: TrajectoryQuery) -> TrajectoryPage:
        where, values = query_sql(query)
        order = SORTS[query.sort]
        down = "DESC" if query.descending else "ASC"
        known = f"{order} IS NULL, " if order in ("reward", "advantage") else ""
        total = int(self._value(f"SELECT count(*) FROM trajectories {where}", values))
        sql = (
            f"SELECT summary, facts FROM trajectories {where} "
            f"ORDER BY {known}{order} {down}, number {down} LIMIT ? OFFSET ?"
        )
        rows = self._rows(sql, (*values, query.limit, query.offset))
        return TrajectoryPage(total=total, items=self._table_rows(rows))

    def _table_rows(self, rows: list[tuple[object, ...]]) -> list[TrajectoryRow]:
        """Rows of the table from (summary, facts), with the judge's reasons."""
        items = [parse_record(TrajectoryRow, summary) for summary, _ in rows]
        reasons = self._reasons(items)
        return [
            item.model_copy(
                update={
                    "facts": parse_record(TrajectoryFacts, facts),
                    "reason": reasons.get(item.id, ""),
                }
            )
            for item, (_, facts) in zip(items, rows, strict=True)
        ]

    def _reasons(self, rows: Sequence[TrajectorySummary]) -> dict[str, str]:
        """Return judges' reasons by trajectory id: of the verdict used in the reward, else of the
        newest."""
        own: dict[str, list[Verdict]] = {}
        for verdict in self.verdicts([row.id for row in rows]):
            own.setdefault(verdict.trajectory_id, []).append(verdict)
        found = {row.id: chief_verdict(row, own.get(row.id, [])) for row in rows}
        return {name: verdict.reason for name, verdict in found.items() if verdict}

    def exported_ids(self, request: ExportTrajectories) -> list[str]:
        """Return the ids of the trajectories to export, in order of arrival. Raises Refused for an
        invalid filter."""
        where, values = query_sql(request)
        rows = self._rows(f"SELECT id FROM trajectories {where} ORDER BY number", values)
        wanted = set(request.ids)
        return [str(name) for (name,) in rows if not wanted or name in wanted]

    def exported(self, run_id: str, trajectory_id: str, tokens: bool) -> TrajectoryLine:
        """Return the trajectory for an export, with the judge's reason and, if `tokens`, with token
        ids and log-probs. Raises Refused if it is unknown."""
        record = self.trajectory(trajectory_id)
        fields = {name: getattr(record, name) for name in Trajectory.model_fields}
        if not tokens:
            fields["branches"] = []
        reason = self._reasons([record]).get(record.id, "")
        return TrajectoryLine.model_construct(**fields, run_id=run_id, reason=reason)

    def filter_names(self) -> FilterNames:
        """Names that occur in the run's trajectories, for the completion of filters."""

        def occurring(sql: str) -> list[str]:
            limit = "GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT ?"
            rows = self._rows(f"{sql} {limit}", (MOST_NAMES,))
            return [str(name) for (name,) in rows if name]

        each = "SELECT one.{column} FROM trajectories, json_each({table}, '$.{field}') one"
        return FilterNames(
            parts=occurring(each.format(column="key", table="summary", field="parts")),
            metrics=occurring(each.format(column="key", table="facts", field="metrics")),
            tools=occurring(each.format(column="key", table="facts", field="tools")),
            labels=occurring(
                each.format(column="value", table="summary", field="labels") + " WHERE labelled"
            ),
            scenarios=occurring("SELECT scenario_id FROM trajectories"),
            models=occurring("SELECT summary ->> '$.contestant' FROM trajectories"),
        )

    def groups(self, query: TrajectoryQuery) -> GroupPage:
        """Return one page of the complete groups with at least one trajectory that the query
        matches, newest step first, and their total number."""
        where, values = query_sql(query)
        chosen = f"SELECT DISTINCT split, step, grp FROM trajectories {where}"
        total = int(
            self._value(
                f"SELECT count(*) FROM ({chosen}) JOIN groups USING (split, step, grp)", values
            )
        )
        sql = (
            f"SELECT g.summary FROM ({chosen}) c JOIN groups g USING (split, step, grp) "
            "ORDER BY c.step DESC, c.split, c.grp LIMIT ? OFFSET ?"
        )
        rows = self._rows(sql, (*values, query.limit, query.offset))
        items = [parse_record(GroupSummary, row[0]) for row in rows]
        return GroupPage(total=total, items=items)

    def curves(self, query: CurveQuery) -> CurvePage:
        """Reward statistics per scenario over time, one page."""
        return read_curves(self._rows, query)

    def review_rows(self, split: Split, annotator: str) -> ReviewRows:
        """Scores and verdicts of a split's unlabelled groups or, with `annotator`, of groups that
        others have labelled but this annotator has not."""
        return read_review_rows(self._rows, split, annotator)

    def group(self, split: Split, step: int, group: int) -> GroupSummary | None:
        sql = "SELECT summary FROM groups WHERE split = ? AND step = ? AND grp = ?"
        rows = self._rows(sql, (split, step, group))
        return parse_record(GroupSummary, rows[0][0]) if rows else None

    def siblings(self, split: Split, step: int, group: int) -> Siblings:
        """Return a group with whole trajectories, verdicts, labels. Raises Refused if unknown."""
        summary = self.group(split, step, group)
        trajectories = self.stored(split, step, group)
        if not trajectories:
            raise Refused.of("run.no_group", f"Step {step} has no group {group + 1}.")
        return Siblings(
            group=summary or _unfinished(trajectories),
            trajectories=trajectories,
            verdicts=self.verdicts([one.id for one in trajectories]),
            labels=self.labels(split, step, group),
        )

    def stored(self, split: Split, step: int, group: int | None = None) -> list[Trajectory]:
        """Whole trajectories of a step, or of one `group` of it, ordered by group and index."""
        chosen = "" if group is None else "AND grp = ?"
        sql = (
            "SELECT body, advantage FROM trajectories "
            f"WHERE split = ? AND step = ? {chosen} ORDER BY grp, idx"
        )
        values = (split, step) if group is None else (split, step, group)
        room = None if group is None else MOST_TOGETHER
        found = []
        for body, advantage in self._rows(sql, values):
            text = unpacked_text(Trajectory, body)
            if room is not None and (room := room - len(text)) < 0:
                raise damaged(self._file, f"a group is larger than {MOST_TOGETHER >> 20} MB")
            one = parse_record(Trajectory, text)
            found.append(one.model_copy(update={"advantage": advantage}))
        return found

    def trajectory(self, trajectory_id: str) -> Trajectory:
        """Return a whole trajectory. Raises Refused if it is unknown."""
        sql = "SELECT body, advantage FROM trajectories WHERE id = ?"
        rows = self._rows(sql, (trajectory_id,))
        if not rows:
            raise Refused.of("run.no_trajectory", f"There is no trajectory {trajectory_id}.")
        return _trajectory(*rows[0])

    def call(self, key: str) -> Call | None:
        rows = self._rows("SELECT body FROM calls WHERE key = ? AND answered LIMIT 1", (key,))
        return _call(rows[0][0]) if rows else None

    def any_call(self, key: str) -> Call:
        """Return a completed model call by its prompt's cache key; with an answer if possible.
        Raises Refused if there is none."""
        sql = (
            "SELECT body FROM calls WHERE key = ? AND body NOT NULL ORDER BY answered DESC LIMIT 1"
        )
        rows = self._rows(sql, (key,))
        if not rows:
            raise Refused.of("judge.no_call", "This judge request is not stored.")
        return _call(rows[0][0])

    def answered(self, judge: str, most: int) -> list[Call]:
        """Return up to `most` answered calls of a judge model, newest first."""
        sql = (
            "SELECT body FROM calls WHERE judge = ? AND answered AND body NOT NULL "
            "ORDER BY rowid DESC LIMIT ?"
        )
        return [_call(row[0]) for row in self._rows(sql, (judge, most))]

    def judge_cost(self) -> float:
        """Cost in USD of all judge calls; those without a stored outcome at their maximum."""
        sql = "SELECT total(cost) FROM calls WHERE key NOT GLOB ?"
        return float(str(self._rows(sql, (f"{ATTEMPT_KEY}*",))[0][0]))

    def attempts_cost(self) -> float:
        """Cost in USD of provider calls in rollouts, counted like `judge_cost`."""
        sql = "SELECT total(cost) FROM calls WHERE key GLOB ?"
        return float(str(self._rows(sql, (f"{ATTEMPT_KEY}*",))[0][0]))

    def verdicts(self, trajectory_ids: Sequence[str]) -> list[Verdict]:
        """All verdicts of these trajectories, oldest first."""
        marks = ", ".join("?" * len(trajectory_ids))
        sql = f"SELECT body FROM verdicts WHERE trajectory_id IN ({marks}) ORDER BY at, judge"
        return [parse_record(Verdict, row[0]) for row in self._rows(sql, tuple(trajectory_ids))]

    def judges(self) -> list[tuple[str, str]]:
        """Return the distinct (judge, rubric version) of all verdicts, last used first."""
        sql = "SELECT judge, rubric FROM verdicts GROUP BY judge, rubric ORDER BY max(at) DESC"
        return [(str(judge), str(rubric)) for judge, rubric in self._rows(sql, ())]

    def judged_groups(self, but: str, most: int) -> list[tuple[Split, int, int]]:
        """Return (split, step, group) of up to `most` training groups: those that judges other than
        `but` scored most recently, in order of that scoring, oldest first."""
        sql = (
            "SELECT t.split, t.step, t.grp, max(v.at) AS latest FROM verdicts v "
            "JOIN trajectories t ON t.id = v.trajectory_id "
            "WHERE v.judge != ? AND t.split = 'train' "
            "GROUP BY t.split, t.step, t.grp ORDER BY latest DESC LIMIT ?"
        )
        rows = self._rows(sql, (but, most))
        return [("train", int(str(step)), int(str(grp))) for _, step, grp, _ in reversed(rows)]

    def verdicts_of(self, judge: str, rubric: str, most: int) -> list[Verdict]:
        """Up to `most` verdicts of a judge with this version (hash) of its rubric, newest first."""
        sql = "SELECT body FROM verdicts WHERE judge = ? AND rubric = ? ORDER BY at DESC LIMIT ?"
        return [parse_record(Verdict, row[0]) for row in self._rows(sql, (judge, rubric, most))]

    def cost_of(self, keys: Collection[str]) -> float:
        """Cost in USD of all calls, retries included, for the prompts with these cache keys."""
        marks = ", ".join("?" * len(keys))
        sql = f"SELECT total(cost) FROM calls WHERE key IN ({marks})"
        return float(str(self._rows(sql, tuple(keys))[0][0]))

    def cost_per_call(self, judges: Collection[str]) -> float | None:
        """Return the mean cost in USD of the answered calls of these models; None without any."""
        marks = ", ".join("?" * len(judges))
        sql = f"SELECT avg(cost) FROM calls WHERE answered AND judge IN ({marks})"
        mean = self._rows(sql, tuple(judges))[0][0]
        return None if mean is None else float(str(mean))

    def names(self, split: Split, step: int, group: int) -> list[str]:
        """Return the trajectory ids of a group, ordered by index in the group."""
        sql = "SELECT id FROM trajectories WHERE split = ? AND step = ? AND grp = ? ORDER BY idx"
        return [str(row[0]) for row in self._rows(sql, (split, step, group))]

    def labels(
        self, split: Split | None = None, step: int | None = None, group: int | None = None
    ) -> list[Label]:
        """Labels of the run or one split, step, group of it, oldest first, also undone ones."""
        wanted = {"split": split, "step": step, "grp": group}
        tests = " AND ".join(f"{name} = ?" for name, value in wanted.items() if value is not None)
        values = tuple(value for value in wanted.values() if value is not None)
        sql = f"SELECT seq, undone, body FROM labels WHERE {tests or '1'} ORDER BY seq"
        return [_label(*row) for row in self._rows(sql, values)]

    def label(self, label_id: str) -> Label | None:
        rows = self._rows("SELECT seq, undone, body FROM labels WHERE id = ?", (label_id,))
        return _label(*rows[0]) if rows else None

    def summaries(self, trajectory_ids: Sequence[str]) -> list[TrajectorySummary]:
        """Return the summaries of these trajectories, in any order."""
        marks = ", ".join("?" * len(trajectory_ids))
        sql = f"SELECT summary FROM trajectories WHERE id IN ({marks})"
        rows = self._rows(sql, tuple(trajectory_ids))
        return [parse_record(TrajectorySummary, row[0]) for row in rows]

    def summaries_of(self, split: Split, step: int) -> list[TrajectorySummary]:
        """Return the summaries of all trajectories of a step, ordered by group and index."""
        sql = "SELECT summary FROM trajectories WHERE split = ? AND step = ? ORDER BY grp, idx"
        return [parse_record(TrajectorySummary, row[0]) for row in self._rows(sql, (split, step))]

    def last_step(self, split: Split) -> int:
        """Return the highest step with a trajectory; 0 if there is none."""
        return self._value(
            "SELECT coalesce(max(step), 0) FROM trajectories WHERE split = ?", (split,)
        )

    def checkpoints(self) -> list[Checkpoint]:
        rows = self._rows("SELECT record FROM checkpoints ORDER BY step", ())
        return [parse_record(Checkpoint, row[0]) for row in rows]

    def _rows(
        self, sql: str, values: tuple[object, ...] | dict[str, object]
    ) -> list[tuple[object, ...]]:
        with self._one_at_a_time:
            try:
                return list(self._db.execute(sql, values))  # type: ignore[arg-type]
            except (apsw.Error, UnicodeDecodeError) as error:
                raise damaged(self._file, str(error)) from error

    def _value(self, sql: str, values: tuple[object, ...] = ()) -> int:
        return int(str(self._rows(sql, values)[0][0]))


def _event(body: object, seq: object) -> Event | UnknownEvent:
    try:
        event = decode(str(body))
    except ValueError as error:
        raise damaged(None, f"event {seq} cannot be read: {in_one_line(error)}") from error
    if event.seq != seq:
        raise damaged(None, f"event {seq} has the number {event.seq} in its content")
    return event


def _trajectory(body: object, advantage: object) -> Trajectory:
    return unpack_record(Trajectory, body).model_copy(update={"advantage": advantage})


def _label(seq: object, undone: object, body: object) -> Label:
    return parse_record(Label, body).model_copy(update={"seq": seq, "undone": undone})


def _call(body: object) -> Call:
    return unpack_record(Call, body)


def _unfinished(trajectories: list[Trajectory]) -> GroupSummary:
    """Summary of a group whose rollouts are still running."""
    first = trajectories[0]
    return GroupSummary(
        split=first.split,
        step=first.step,
        group=first.group,
        scenario_id=first.scenario_id,
        title=first.title,
        rewards=[t.reward for t in trajectories],
        mean=None,
        std=None,
        signal=False,
    )

"""Reader for clients that are far behind: long ranges of events are summarized as one event."""

from dataclasses import dataclass, field

from engine.protocol.events.history import COUNTED, LINES_KEPT, History, encode_history
from engine.storage.run_db.reader import RunReader

FAR = 4000
"""Minimum number of unread events for which a summary is sent instead."""
LONGEST = 50_000

KEPT = f"""
SELECT seq, body FROM events WHERE seq BETWEEN :first AND :last AND kind NOT IN {COUNTED}
UNION ALL
SELECT * FROM (
    SELECT seq, body FROM events WHERE kind = 'log.written' AND seq BETWEEN :first AND :last
    ORDER BY seq DESC LIMIT {LINES_KEPT})
ORDER BY seq
"""

CALLS = """
SELECT count(*) FILTER (WHERE opened AND NOT asked), count(*) FILTER (WHERE failed AND NOT asked),
    total(usd) FILTER (WHERE NOT asked), total(usd) FILTER (WHERE asked)
FROM (
    SELECT kind = 'call.opened' AS opened, coalesce(body ->> '$.attempt', '') != '' AS asked,
        body ->> '$.problem' NOT NULL AS failed, body ->> '$.usage.cost_usd' AS usd
    FROM events WHERE kind IN ('call.opened', 'call.closed') AND seq BETWEEN :first AND :last)
"""

ATTEMPTS = """
SELECT seq, 1, body ->> '$.trajectory.id', coalesce(body ->> '$.trajectory.awaits_judge', 0),
    body ->> '$.trajectory.reward' IS NULL
FROM events WHERE kind = 'trajectory.recorded' AND seq BETWEEN :first AND :last
UNION ALL
SELECT seq, 0, one.value ->> '$.id', coalesce(one.value ->> '$.awaits_judge', 0),
    one.value ->> '$.reward' IS NULL
FROM events, json_each(body, '$.trajectories') one
WHERE kind = 'group.judged' AND seq BETWEEN :first AND :last
ORDER BY seq
"""


@dataclass
class Tally:
    """Counts of trajectories over a range of events, computed like RunState in the studio."""

    recorded: dict[str, None] = field(default_factory=dict)
    count: int = 0
    unscored: int = 0
    awaiting: set[str] = field(default_factory=set)
    settled: list[tuple[str, bool, bool]] = field(default_factory=list)

    def take(self, recorded: bool, name: str, awaits: bool, unscored: bool) -> None:
        if recorded:
            self.count += 1
            self.recorded[name] = None
        elif name not in self.recorded:
            self.settled.append((name, awaits, unscored))
            return
        elif name not in self.awaiting:
            return
        self.awaiting.discard(name)
        if awaits:
            self.awaiting.add(name)
        elif unscored:
            self.unscored += 1


class HistoryReader(RunReader):
    """Reader of events for a stream whose client folds them into a state."""

    def all(self, after: int) -> tuple[list[str], int]:
        """Events with `seq` above `after` as JSON lines, and the `seq` of the last of them (`after`
        if there are none)."""
        lines = self.events(after)
        return lines, after + len(lines)

    def brief(self, after: int) -> tuple[list[str], int]:
        """Return unread events like `all` or, if there are many, one `History` event that
        summarizes most of them, and the `seq` up to which it reaches."""
        if history := self.history(after):
            return [encode_history(history)], int(history.seq or 0)
        return self.all(after)

    def history(self, after: int) -> History | None:
        """Summarize the events after `after` up to the last start of a step within `LONGEST`
        events. None if fewer than `FAR` events are unread, or if no step starts far enough after
        `after`."""
        sql = (
            "SELECT (SELECT max(seq) FROM events), max(seq) - 1 FROM events "
            "WHERE kind = 'step.started' AND seq BETWEEN ? AND ?"
        )
        newest, last = self._rows(sql, (after + 2, after + 1 + LONGEST))[0]
        if last is None or int(str(newest)) - after < FAR or int(str(last)) - after < FAR // 4:
            return None
        return self._stretch(after + 1, int(str(last)))

    def _stretch(self, first: int, last: int) -> History:
        span: dict[str, object] = {"first": first, "last": last}
        kept = [str(body) for _, body in self._rows(KEPT, span)]
        tally = Tally()
        for _, recorded, name, awaits, unscored in self._rows(ATTEMPTS, span):
            tally.take(bool(recorded), str(name), bool(awaits), bool(unscored))
        calls, failed, usd, attempts_usd = self._rows(CALLS, span)[0]
        lines = "SELECT count(*) FROM events WHERE kind = 'log.written' AND seq BETWEEN ? AND ?"
        logged = int(str(self._rows(lines, (first, last))[0][0]))
        ends = self._rows("SELECT body ->> '$.run_id', body ->> '$.at' FROM events WHERE seq = ?",
                          (last,))[0]  # fmt: skip
        return History(
            run_id=str(ends[0]),
            first=first,
            seq=last,
            at=float(str(ends[1])),
            lines=kept,
            trajectories=tally.count,
            unscored=tally.unscored,
            recorded=tuple(tally.recorded),
            awaiting=tuple(sorted(tally.awaiting)),
            settled=tuple(tally.settled),
            judge_calls=int(str(calls)),
            judge_failed=int(str(failed)),
            judge_usd=float(str(usd)),
            attempts_usd=float(str(attempts_usd)),
            logged=max(0, logged - LINES_KEPT),
        )

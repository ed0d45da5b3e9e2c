"""Reward statistics per scenario and visit, computed and sorted in SQL over one covering index.

A visit is one group. Rewards are the current ones, changed by labels.
"""

import json
from collections.abc import Callable, Sequence

from engine.protocol.records.curves import CurvePage, CurveQuery, ScenarioCurve

Rows = Callable[[str, tuple[object, ...]], list[tuple[object, ...]]]

MOST_POINTS = 48
"""Maximum number of points per curve."""

SORTS = {
    "scenario": "scenario_id",
    "visits": "visits",
    "mean": "mean",
    "early": "early",
    "late": "late",
    "gain": "late - early",
    "lost": "lost",
    "spread": "spread",
    "difficulty": "difficulty",
    "last_step": "last_step",
}

# The ends of the scale on which attempts count as solved: at least from 0 to 1. Then the last step.
SCALE = """
SELECT min(0.0, coalesce((SELECT min(reward) FROM trajectories), 0)),
    max(1.0, coalesce((SELECT max(reward) FROM trajectories), 1)),
    (SELECT coalesce(max(step), 0) FROM trajectories WHERE split = ?)
"""

# ?1 split, ?2 lowest and ?3 highest reward, ?4 what an id contains. Unscored visits say nothing:
# nth and known count the others.
VISITS = """
visits AS (
    SELECT scenario_id, step, count(*) AS attempts, count(reward) AS scored, total(reward) AS sum,
        total(reward * reward) AS squares, total(reward >= (?2 + ?3) / 2) AS solved,
        sum(count(reward) > 0) OVER (
            PARTITION BY scenario_id ORDER BY step, grp ROWS UNBOUNDED PRECEDING) AS nth,
        sum(count(reward) > 0) OVER (PARTITION BY scenario_id) AS known
    FROM trajectories
    WHERE split = ?1 AND (?4 = '' OR instr(lower(scenario_id), lower(?4)))
    GROUP BY scenario_id, step, grp
)
"""

# 4 and 2 are RECENT and PRIOR of engine/training/step/curriculum.py; nothing is divided by 0 but
# to NULL.
CURVES = f"""
WITH {VISITS}, sums AS (
    SELECT scenario_id, count(*) AS visits, sum(attempts) AS attempts,
        sum(attempts) - sum(scored) AS unscored, sum(sum) / sum(scored) AS mean,
        sum(solved) FILTER (WHERE nth <= (known + 2) / 3)
            / sum(scored) FILTER (WHERE nth <= (known + 2) / 3) AS early,
        sum(solved) FILTER (WHERE nth > known - (known + 2) / 3)
            / sum(scored) FILTER (WHERE nth > known - (known + 2) / 3) AS late,
        sum(solved) FILTER (WHERE nth > (known + 2) / 3 AND nth <= known - (known + 2) / 3)
            / sum(scored) FILTER (WHERE nth > (known + 2) / 3 AND nth <= known - (known + 2) / 3)
            AS middle,
        avg(sqrt(max(0, squares / scored - (sum / scored) * (sum / scored)))) AS spread,
        iif(max(known), 1 - (total((sum - ?2 * scored) / (?3 - ?2)) FILTER (WHERE nth > known - 4)
            + 1) / (total(scored) FILTER (WHERE nth > known - 4) + 2), NULL) AS difficulty,
        max(step) AS last_step
    FROM visits GROUP BY scenario_id
)
SELECT scenario_id, visits, attempts, unscored, mean, early, late, late - early,
    max(early, late, coalesce(middle, 0)) - late AS lost, spread, difficulty, last_step,
    count(*) OVER () AS total
FROM sums
"""

# ?1 split, ?2 JSON of a page's ids, ?3 most points, ?4 the last step: all curves share an axis.
POINTS = """
SELECT scenario_id, avg(step), avg(reward)
FROM json_each(?2) one
CROSS JOIN trajectories ON split = ?1 AND scenario_id = one.value
WHERE reward IS NOT NULL
GROUP BY scenario_id, step * min(?3, ?4 + 1) / (?4 + 1)
ORDER BY scenario_id, step
"""

TITLES = """
SELECT one.value, (
    SELECT title FROM trajectories WHERE scenario_id = one.value ORDER BY number DESC LIMIT 1
) FROM json_each(?) one
"""


def read_curves(rows: Rows, query: CurveQuery) -> CurvePage:
    """Return one page of reward curves by scenario; `rows` is a function that executes an SQL query
    on the run.db."""
    low, high, last = (float(str(end)) for end in rows(SCALE, (query.split,))[0])
    order = SORTS[query.sort]
    down = "DESC" if query.descending else "ASC"
    found = rows(
        f"{CURVES} ORDER BY {order} IS NULL, {order} {down}, scenario_id LIMIT ?5 OFFSET ?6",
        (query.split, low, high, query.search.strip(), query.limit, query.offset),
    )
    ids = json.dumps([row[0] for row in found])
    titles = {str(name): str(title) for name, title in rows(TITLES, (ids,))}
    curves: dict[str, list[tuple[object, object]]] = {}
    for name, step, mean in rows(POINTS, (query.split, ids, MOST_POINTS, int(last))):
        curves.setdefault(str(name), []).append((step, mean))
    items = [_curve(row, titles[str(row[0])], curves.get(str(row[0]), ())) for row in found]
    total = int(str(found[0][-1])) if found else 0
    return CurvePage(total=total, solved_at=(low + high) / 2, items=items)


def _curve(
    row: tuple[object, ...], title: str, curve: Sequence[tuple[object, object]]
) -> ScenarioCurve:
    names = [name for name in ScenarioCurve.model_fields if name not in ("title", "curve")]
    values = dict(zip(names, row, strict=False))
    return ScenarioCurve.model_validate({**values, "title": title, "curve": curve})

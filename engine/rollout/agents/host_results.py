"""Conversion of agents' results into numbers that can be sent. Needs only Python 3.9."""

import json

MOST_REWARD = 1e6
MOST_METRIC = 1e30
MOST_NAME = 100


class Failure(Exception):
    """Failure of a rollout, with a code, a message and a hint."""

    def __init__(self, code, message, hint="", where="", detail=""):
        super().__init__(message)
        self.problem = {
            "code": code,
            "message": message,
            "hint": hint,
            "where": where,
            "detail": detail,
        }


def read_result(result):
    """Convert an agent's return value (None, a number, or a dict) into (reward parts, metrics, turn
    rewards). Raises Failure for anything else."""
    if result is None:
        return {}, {}, []
    if isinstance(result, dict):
        parts = {
            named(k): number(v, "rewards.%s" % k)
            for k, v in (result.get("rewards") or {}).items()
            if v is not None
        }
        if result.get("reward") is not None:
            parts["rules"] = number(result["reward"], "reward")
        metrics = {
            named(k): number(v, "metrics.%s" % k, MOST_METRIC)
            for k, v in (result.get("metrics") or {}).items()
        }
        turns = turn_rewards(result.get("turn_rewards"))
        if turns and "turns" in parts:
            raise Failure(
                "agent.bad_result",
                "The agent returned turn_rewards and a reward part named turns.",
                "Rename the part: `turns` is the sum of turn_rewards.",
            )
        if turns:
            parts["turns"] = sum(turns)
        return parts, metrics, turns
    return {"rules": number(result, "the result")}, {}, []


def turn_rewards(values):
    """Turn rewards as a list of one number per completion; empty for None. Raises Failure."""
    if values is None:
        return []
    if not isinstance(values, (list, tuple)):
        raise Failure(
            "agent.bad_result",
            "The agent returned turn_rewards that are not a list.",
            "Return one number per model response, such as [0, 0.5, 1].",
        )
    return [number(value, "turn_rewards[%d]" % place) for place, value in enumerate(values)]


def named(name):
    """Name of a reward part or metric as text. Raises Failure if it is empty or too long."""
    name = str(name)
    if not 0 < len(name) <= MOST_NAME:
        raise Failure(
            "agent.bad_result",
            "The agent returned a metric or reward whose name has %d characters." % len(name),
            "Use a name of 1 to %d characters." % MOST_NAME,
        )
    return name


def number(value, what, most=MOST_REWARD):
    what = what[:200]
    try:
        value = float(value)
    except (TypeError, ValueError, OverflowError):
        raise Failure(
            "agent.bad_result",
            "The agent returned a value for %s that is not a number." % what,
            'Return {"reward": 1.0, "metrics": {...}}, a number, or None.',
        ) from None
    if value != value or value in (float("inf"), float("-inf")):
        raise Failure(
            "agent.bad_result",
            "The agent returned %s for %s." % (value, what),
            "Return a finite number.",
        )
    if abs(value) > most:
        raise Failure(
            "agent.bad_result",
            "The agent returned %g for %s, which is out of range." % (value, what),
            "Return a number between -%g and %g." % (most, most),
        )
    return value


def last_line(line):
    try:
        return json.loads(line) if line else None
    except ValueError:
        raise Failure(
            "agent.bad_result",
            "The last line that the agent's command printed is not valid JSON.",
            'Print {"reward": 1.0} as the last line.',
            detail=line[:500],
        ) from None

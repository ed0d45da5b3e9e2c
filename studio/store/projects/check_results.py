"""Results of the tests of agent and judge, as text."""

from typing import NamedTuple

from engine.protocol.problems import ConfigError, Problem, Refused
from engine.protocol.records.judging import JudgeAnswer, JudgeCheck
from engine.protocol.records.runs import Trajectory
from studio.text import formatting

SHORT_TITLE = 40


class Outcome(NamedTuple):
    """State of a check (good, warn, bad, open, running), result and hint."""

    state: str
    words: str
    hint: str = ""


AGENT_OPEN = Outcome("open", "Not tested. The test imports the agent and runs one rollout.")
JUDGE_OPEN = Outcome("open", "Not tested. The test makes one paid call to each judge.")
CHANGED = Outcome("open", "The project has changed since the last test.")


def no_scenario() -> ConfigError:
    """Return the error of a test in a project without scenarios."""
    return ConfigError.of(
        "scenarios.none", "The project has no scenario to test with.", "Add one under Scenarios."
    )


def nothing_made() -> Refused:
    """Return the error of a test that ended without a rollout."""
    return Refused.of("arena.nothing", "The test ended without a rollout.", "Try again.")


def failed(problem: Problem) -> Outcome:
    """Return the outcome of a test that ended with a problem."""
    where = f"{problem.where}: " if problem.where else ""
    return Outcome("bad", f"{where}{problem.message}", problem.hint)


def agent_outcome(attempt: Trajectory, judged: bool) -> Outcome:
    """Return the outcome of the agent's test rollout. `judged`: rewards come from the judge, so the
    agent need not return one."""
    problem = attempt.problem
    if problem is not None and not (judged and problem.code.startswith("reward.")):
        return failed(problem)
    took = formatting.duration(attempt.duration_s)
    if not attempt.turns:
        hint = "Call the model with the base URL, API key and name that the agent receives."
        return Outcome("warn", f"The rollout ended after {took} without a model call.", hint)
    facts = [
        formatting.plural(attempt.turns, "model call"),
        formatting.plural(attempt.sampled_tokens, "token"),
        "scored by the judge" if attempt.reward is None else f"reward {_reward(attempt)}",
    ]
    words = f"One rollout in {took}: {', '.join(facts)}."
    if attempt.truncated:
        return Outcome("warn", words, "A completion was truncated at its token limit.")
    return Outcome("good", words)


def judge_outcome(check: JudgeCheck) -> Outcome:
    """Return the outcome of the judges' test: the first failure, or duration and cost if none."""
    bad = next((one for one in check.answers if one.problem), None)
    if bad is not None and bad.problem is not None:
        more = failed(bad.problem)
        return more._replace(words=f"{short_name(bad.judge)}: {more.words}")
    names = ", ".join(short_name(one.judge) for one in check.answers)
    seconds = max(one.seconds for one in check.answers)
    usd = sum(one.usage.cost_usd for one in check.answers)
    return Outcome(
        "good", f"{names} responded in {formatting.duration(seconds)} for {formatting.money(usd)}."
    )


def answer_words(answer: JudgeAnswer) -> str:
    """Describe duration, tokens and cost of a judge's response: `1.2 s, 150 tokens, $0.0015`."""
    usage = answer.usage
    tokens = formatting.plural(usage.prompt_tokens + usage.completion_tokens, "token")
    return f"{formatting.duration(answer.seconds)}, {tokens}, {formatting.money(usage.cost_usd)}"


def short_name(model: str) -> str:
    """Return the model name without its provider."""
    return model.rpartition("/")[2]


def running_words(title: str, seconds: float) -> str:
    """Describe a test in progress: `Running the agent on “Answer the mail”, 8 s`."""
    if not title:
        return "Running the agent…"
    short = title if len(title) <= SHORT_TITLE else title[: SHORT_TITLE - 1] + "…"
    return f"Running the agent on “{short}”, {seconds:.0f} s"


def _reward(attempt: Trajectory) -> str:
    return formatting.number(attempt.reward)

"""Writer of drafts: asks an LLM for the plan first, then for scenarios in batches.

Every reply is checked. An unusable one is asked for once more with the reason, and three batches in
a row without a new scenario end the writing with what there is. Requests and responses are stored
in the draft's run, so repeating them costs nothing.
"""

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

from engine.autorl.draft_folder import judge_config_of
from engine.autorl.prompts import plan_question, retry_messages, scenarios_question
from engine.autorl.replies import read_plan, read_scenarios
from engine.autorl.similarity import split, without_duplicates
from engine.judge.prompting.prompt import Messages
from engine.judge.providers.access import Access
from engine.judge.providers.client import Provider
from engine.judge.providers.ledger import Ledger
from engine.protocol.problems import Problem
from engine.protocol.requests.drafts import LEAST, DescribeTask, Draft, DraftTicked
from engine.runtime.closing import closing
from engine.storage.run_folder.run import Run

AT_ONCE = 12
"""Maximum number of scenarios per request."""
FRUITLESS = 3
"""Number of consecutive batches without a new scenario after which writing ends."""
ALIKE = "too similar to another"
SURPLUS = "more than requested"
BUDGET = "authoring.budget"
"""Problem code if the budget does not cover the next request."""

Read = Callable[[str], str]
"""Parser of a reply: returns what is wrong with it, empty if it can be used."""


class DraftWriter:
    """Writer of one draft; iterate over `tell`."""

    def __init__(self, wanted: DescribeTask, provider: Provider, ledger: Ledger) -> None:
        self._wanted, self._provider, self._ledger = wanted, provider, ledger
        self._model = wanted.writer.model
        self._draft = Draft()
        self._left_out: Counter[str] = Counter()
        self._problem: Problem | None = None

    async def tell(self) -> AsyncGenerator[DraftTicked, None]:
        """Write the draft. Yields, before each LLM request, the draft so far and the maximum cost
        (USD) of that request; the last tick has `ended` set, and a `problem` if the draft is not
        complete."""
        question = plan_question(self._wanted.description, self._wanted.tools)
        yield self._tick("Writing the system prompt and the rubric", question)
        await self._plan(question)
        fruitless = 0
        while not self._problem and self._lacking:
            question = self._next_question(fruitless)
            have = len(self._draft.scenarios)
            yield self._tick(f"Writing scenarios {have + 1} to {have + self._batch}", question)
            await self._more(question)
            fruitless = fruitless + 1 if len(self._draft.scenarios) == have else 0
            if fruitless == FRUITLESS:
                self._problem = self._problem or _dried_up(have, self._wanted.count)
        ordered = split(self._draft.scenarios, 0)
        self._draft = self._draft.model_copy(update={"scenarios": ordered})
        if not self._problem and len(ordered) < LEAST:
            self._problem = _dried_up(len(ordered), self._wanted.count)
        yield self._tick("Written").model_copy(update={"ended": True})

    @property
    def _lacking(self) -> int:
        return self._wanted.count - len(self._draft.scenarios)

    @property
    def _batch(self) -> int:
        return min(AT_ONCE, self._lacking)

    def _next_question(self, fruitless: int) -> Messages:
        before = [one.input for one in self._draft.scenarios]
        wanted = self._wanted
        return scenarios_question(wanted.description, wanted.tools, self._batch, before, fruitless)

    async def _plan(self, question: Messages) -> None:
        reply = await self._answer(question, lambda text: read_plan(text).complaint)
        if reply is not None:
            plan = read_plan(reply)
            written = {"title": plan.title, "system": plan.system, "rubric": plan.rubric}
            self._draft = self._draft.model_copy(update=written)

    async def _more(self, question: Messages) -> None:
        reply = await self._answer(
            question, lambda text: read_scenarios(text).complaint, needed=False
        )
        if reply is None:
            return
        read, kept = read_scenarios(reply), self._draft.scenarios
        fresh = without_duplicates(kept, read.items)
        taken = fresh[: self._lacking]
        self._left_out += read.left_out
        self._left_out[ALIKE] += len(read.items) - len(fresh)
        self._left_out[SURPLUS] += len(fresh) - len(taken)
        self._draft = self._draft.model_copy(update={"scenarios": [*kept, *taken]})

    async def _answer(self, question: Messages, wrong: Read, needed: bool = True) -> str | None:
        """Send the prompt `question`, and once more if `wrong(reply)` names a fault; return the
        usable reply or None. A failed request ends the writing, two unusable replies do if
        `needed`."""
        complaint = ""
        for _ in range(2):
            call = await self._ledger.ask(self._model, question, "")
            if call.problem:
                self._problem = _of_writer(call.problem)
                return None
            cut = "the answer was cut off at the token limit" if call.finish == "length" else ""
            if not (complaint := cut or wrong(call.reply)):
                return call.reply
            question = retry_messages(question, call.reply, complaint)
        self._left_out["unusable answer"] += 1
        if needed:
            self._problem = Problem(
                code="authoring.useless",
                message=f"{self._model} did not return what was requested: {complaint}.",
                hint="Add detail to the description, or choose another model.",
            )
        return None

    def _tick(self, words: str, question: Messages | None = None) -> DraftTicked:
        most = self._provider.most_cost(self._model, question) if question else 0.0
        return DraftTicked(
            words=words,
            spent_usd=self._ledger.spent,
            next_usd=most,
            draft=self._draft,
            left_out={why: count for why, count in self._left_out.items() if count},
            problem=self._problem,
        )


def _of_writer(problem: Problem) -> Problem:
    """Reword a problem of a judge call (such as a used-up budget) for the writer model."""
    if problem.code != "judge.budget":
        return problem
    return Problem(
        code=BUDGET,
        message="The budget is too small for the next request; finished parts are kept.",
        hint="Raise the budget and continue: stored answers are not paid for again.",
        detail=problem.message,
    )


def _dried_up(have: int, wanted: int) -> Problem:
    return Problem(
        code="authoring.dried_up",
        message=f"{have} of {wanted} scenarios were written; further requests gave no new ones.",
        hint="Continue with these, add detail to the description, or choose another model.",
    )


@asynccontextmanager
async def open_writer(wanted: DescribeTask, run: Run, access: Access) -> AsyncIterator[DraftWriter]:
    """Yield a writer of system prompt, rubric and scenarios for the description in `wanted`. Its
    model calls are stored in `run`. Raises ConfigError if the model's price is unknown."""
    config = judge_config_of(wanted.writer)
    async with closing(await Provider.start(config, access, run.log_file)) as provider:
        yield DraftWriter(wanted, provider, Ledger(run, provider, config))

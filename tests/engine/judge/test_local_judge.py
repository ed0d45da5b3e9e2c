"""The local judge over a policy that knows two numbers of every attempt."""

import asyncio
import random
import subprocess
import sys

import torch

from engine.judge.local_judge import LEAST_GROUPS, LocalJudge, Preference, preferences_of_scores
from engine.policy.base import Pair, PreferenceModel, TrainItem
from engine.policy.torch.training.bradley_terry import fit
from engine.protocol.problems import Problem
from engine.protocol.records.runs import Branch, Trajectory


class Features:
    """The part of a policy that the judge uses: the first two sampled tokens are the features."""

    def __init__(self) -> None:
        self.asked: list[TrainItem] = []

    async def features(self, items: list[TrainItem]) -> list[list[float]]:
        self.asked += items
        return [[float(t) for t in item.tokens[item.spans[0][0] :][:2]] for item in items]

    async def fit_preferences(
        self, features_ND: list[list[float]], pairs: list[Pair]
    ) -> PreferenceModel:
        return fit(torch.tensor(features_ND), pairs)


def attempt(group: int, index: int, good: int, noise: int = 0) -> Trajectory:
    branch = Branch(tokens=[7, good, noise], spans=[(1, 3)], logprobs=[-1.0, -1.0])
    return Trajectory(
        id=f"t{group}-{index}",
        split="train",
        step=1,
        group=group,
        index=index,
        scenario_id="s",
        title="s",
        reward=None,
        awaits_judge=True,
        sampled_tokens=2,
        branches=[branch],
    )


def groups(count: int, first: int = 0) -> list[list[Trajectory]]:
    chance = random.Random(first)
    return [
        [attempt(g, i, chance.randrange(50), chance.randrange(50)) for i in range(4)]
        for g in range(first, first + count)
    ]


def worth(one: Trajectory) -> float:
    return one.branches[0].tokens[1] / 50


def preferred(attempts: list[list[Trajectory]]) -> list[Preference]:
    flat = [one for group in attempts for one in group]
    return preferences_of_scores(flat, {one.id: worth(one) for one in flat}, 0.0)


def judge_of(count: int = 12) -> tuple[LocalJudge, Features]:
    policy = Features()
    judge = LocalJudge(policy)  # type: ignore[arg-type]
    asyncio.run(judge.fit(preferred(groups(count))))
    return judge, policy


def test_it_scores_unseen_groups_in_the_order_that_was_preferred() -> None:
    judge, _ = judge_of()
    assert judge.accuracy is not None
    assert judge.accuracy.share > 0.9
    right = 0
    pairs = 0
    means = []
    for group in groups(20, first=100):
        verdicts = asyncio.run(judge.judge(group))
        scores = {verdict.trajectory_id: verdict.score or 0.0 for verdict in verdicts}
        assert all(0 < score < 1 for score in scores.values())
        assert {(v.judge, v.rubric) for v in verdicts} == {("local", "local")}
        for preference in preferred([group]):
            right += scores[preference.better.id] > scores[preference.worse.id]
            pairs += 1
        means.append(sum(scores.values()) / len(scores))
    assert right / pairs > 0.9
    truth = [sum(map(worth, group)) / len(group) for group in groups(20, first=100)]
    assert (
        torch.corrcoef(torch.tensor([means, truth]))[0, 1] > 0.9
    )  # scores mean the same in every group


def test_the_reason_says_how_good_it_is() -> None:
    judge, _ = judge_of()
    best, worst = asyncio.run(judge.judge([attempt(99, 0, 49), attempt(99, 1, 0)]))
    assert judge.accuracy is not None
    share, pairs = judge.accuracy
    said = f"trajectories of 12 groups. This model (fit {judge.version}) orders {share:.2f} of "
    said += f"{pairs} held-out pairs correctly."
    assert best.reason == f"Resembles preferred {said}"
    assert worst.reason == f"Resembles rejected {said}"


def test_before_there_are_enough_groups_nothing_is_scored() -> None:
    judge, policy = judge_of(LEAST_GROUPS - 1)
    assert judge.accuracy is None
    assert policy.asked == []
    verdicts = asyncio.run(judge.judge(groups(1)[0]))
    assert [v.score for v in verdicts] == [None] * 4
    assert {v.problem.code for v in verdicts if v.problem} == {"judge.local_unfitted"}
    asyncio.run(judge.fit(preferred(groups(LEAST_GROUPS))))
    assert all(v.score is not None for v in asyncio.run(judge.judge(groups(1)[0])))
    asyncio.run(judge.fit([]))
    assert judge.version is None


def test_who_said_nothing_is_unscored_and_who_failed_is_left_out() -> None:
    judge, _ = judge_of()
    late = Problem(code="agent.timeout", message="late")
    cost = Problem(code="judge.budget", message="too dear")
    silent = {"branches": [], "sampled_tokens": 0}
    group = [
        attempt(50, 0, 40),
        attempt(50, 1, 10).model_copy(update=silent),
        attempt(50, 2, 30).model_copy(update={"problem": late}),
        attempt(50, 3, 20).model_copy(update={"problem": cost}),
    ]
    verdicts = {v.trajectory_id: v for v in asyncio.run(judge.judge(group))}
    assert list(verdicts) == ["t50-0", "t50-1", "t50-3"]
    problem = verdicts["t50-1"].problem
    assert problem is not None
    assert problem.code == "judge.local_no_features"
    assert verdicts["t50-0"].score is not None
    assert verdicts["t50-3"].score is not None


def test_preferences_without_words_or_weight_do_not_count() -> None:
    silent = attempt(0, 0, 40).model_copy(update={"branches": [], "sampled_tokens": 0})
    wordless = [Preference(silent, attempt(0, 1, 3))] * 99
    judge = LocalJudge(Features())  # type: ignore[arg-type]
    light = [preference._replace(weight=0.0) for preference in preferred(groups(12))]
    assert asyncio.run(judge.fit([*wordless, *light])) is None


def test_features_are_asked_for_once() -> None:
    judge, policy = judge_of()
    asked = len(policy.asked)
    assert asked == 48
    asyncio.run(judge.fit(preferred(groups(12))))
    asyncio.run(judge.judge(groups(12)[0]))
    assert len(policy.asked) == asked


def test_only_branches_with_sampled_tokens_are_asked_about() -> None:
    judge, policy = judge_of()
    one = attempt(70, 0, 10)
    other = Branch(tokens=[7, 40, 0], spans=[(1, 3)], logprobs=[-1.0, -1.0])
    unsampled = Branch(tokens=[7, 40, 0], spans=[], logprobs=[])
    both = one.model_copy(update={"branches": [*one.branches, unsampled, other]})
    asyncio.run(judge.judge([both]))
    assert len(policy.asked) == 48 + 2


def test_the_engine_needs_no_torch_for_it() -> None:
    code = "import sys, engine.judge.local_judge; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

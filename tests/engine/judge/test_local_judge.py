"""Local judge over a policy with two features per trajectory."""

import asyncio
import random
import subprocess
import sys

import torch

from engine.judge.local_judge import LEAST_GROUPS, LocalJudge, Preference, preferences_of_scores
from engine.policy.base import Pair, PreferenceModel, TrainItem
from engine.policy.torch.training.bradley_terry import fit
from engine.protocol.problems import Problem
from engine.protocol.records.conversations import Branch
from engine.protocol.records.runs import Trajectory


class Features:
    """Policy stub for the judge: the first two sampled tokens are the features."""

    def __init__(self) -> None:
        self.requested: list[TrainItem] = []

    async def features(self, items: list[TrainItem]) -> list[list[float]]:
        self.requested += items
        return [[float(t) for t in item.tokens[item.spans[0][0] :][:2]] for item in items]

    async def fit_preferences(
        self, features_ND: list[list[float]], pairs: list[Pair]
    ) -> PreferenceModel:
        return fit(torch.tensor(features_ND), pairs)


def trajectory(group: int, index: int, good: int, noise: int = 0) -> Trajectory:
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
    rng = random.Random(first)
    return [
        [trajectory(g, i, rng.randrange(50), rng.randrange(50)) for i in range(4)]
        for g in range(first, first + count)
    ]


def quality(one: Trajectory) -> float:
    return one.branches[0].tokens[1] / 50


def preferences_by_quality(groups_: list[list[Trajectory]]) -> list[Preference]:
    flat = [one for group in groups_ for one in group]
    return preferences_of_scores(flat, {one.id: quality(one) for one in flat}, 0.0)


def judge_of(count: int = 12) -> tuple[LocalJudge, Features]:
    policy = Features()
    judge = LocalJudge(policy)  # type: ignore[arg-type]
    asyncio.run(judge.fit(preferences_by_quality(groups(count))))
    return judge, policy


def test_local_judge_orders_unseen_groups_by_preference() -> None:
    judge, _ = judge_of()
    assert judge.accuracy is not None
    assert judge.accuracy.share > 0.9
    correct = 0
    pairs = 0
    means = []
    for group in groups(20, first=100):
        verdicts = asyncio.run(judge.judge(group))
        scores = {verdict.trajectory_id: verdict.score or 0.0 for verdict in verdicts}
        assert all(0 < score < 1 for score in scores.values())
        assert {(v.judge, v.rubric) for v in verdicts} == {("local", "local")}
        for preference in preferences_by_quality([group]):
            correct += scores[preference.better.id] > scores[preference.worse.id]
            pairs += 1
        means.append(sum(scores.values()) / len(scores))
    assert correct / pairs > 0.9
    true_means = [sum(map(quality, group)) / len(group) for group in groups(20, first=100)]
    assert (
        torch.corrcoef(torch.tensor([means, true_means]))[0, 1] > 0.9
    )  # scores are comparable between groups


def test_reason_states_held_out_accuracy() -> None:
    judge, _ = judge_of()
    best, worst = asyncio.run(judge.judge([trajectory(99, 0, 49), trajectory(99, 1, 0)]))
    assert judge.accuracy is not None
    share, pairs = judge.accuracy
    suffix = f"trajectories of 12 groups. This model (fit {judge.version}) ranks "
    suffix += f"{100 * share:.0f} % of {pairs} held-out pairs correctly."
    assert best.reason == f"Resembles preferred {suffix}"
    assert worst.reason == f"Resembles rejected {suffix}"


def test_local_judge_is_unscored_until_enough_groups() -> None:
    judge, policy = judge_of(LEAST_GROUPS - 1)
    assert judge.accuracy is None
    assert policy.requested == []
    verdicts = asyncio.run(judge.judge(groups(1)[0]))
    assert [v.score for v in verdicts] == [None] * 4
    assert {v.problem.code for v in verdicts if v.problem} == {"judge.local_unfitted"}
    asyncio.run(judge.fit(preferences_by_quality(groups(LEAST_GROUPS))))
    assert all(v.score is not None for v in asyncio.run(judge.judge(groups(1)[0])))
    asyncio.run(judge.fit([]))
    assert judge.version is None


def test_silent_trajectory_is_unscored_and_failed_one_is_skipped() -> None:
    judge, _ = judge_of()
    late = Problem(code="agent.timeout", message="late")
    cost = Problem(code="judge.budget", message="too dear")
    silent = {"branches": [], "sampled_tokens": 0}
    group = [
        trajectory(50, 0, 40),
        trajectory(50, 1, 10).model_copy(update=silent),
        trajectory(50, 2, 30).model_copy(update={"problem": late}),
        trajectory(50, 3, 20).model_copy(update={"problem": cost}),
    ]
    verdicts = {v.trajectory_id: v for v in asyncio.run(judge.judge(group))}
    assert list(verdicts) == ["t50-0", "t50-1", "t50-3"]
    problem = verdicts["t50-1"].problem
    assert problem is not None
    assert problem.code == "judge.local_no_features"
    assert verdicts["t50-0"].score is not None
    assert verdicts["t50-3"].score is not None


def test_preferences_without_tokens_or_weight_are_ignored() -> None:
    silent = trajectory(0, 0, 40).model_copy(update={"branches": [], "sampled_tokens": 0})
    silent_pairs = [Preference(silent, trajectory(0, 1, 3))] * 99
    judge = LocalJudge(Features())  # type: ignore[arg-type]
    zero_weight_pairs = [
        preference._replace(weight=0.0) for preference in preferences_by_quality(groups(12))
    ]
    assert asyncio.run(judge.fit([*silent_pairs, *zero_weight_pairs])) is None


def test_features_are_cached_between_fits() -> None:
    judge, policy = judge_of()
    request_count = len(policy.requested)
    assert request_count == 48
    asyncio.run(judge.fit(preferences_by_quality(groups(12))))
    asyncio.run(judge.judge(groups(12)[0]))
    assert len(policy.requested) == request_count


def test_features_are_requested_only_for_sampled_branches() -> None:
    judge, policy = judge_of()
    one = trajectory(70, 0, 10)
    other = Branch(tokens=[7, 40, 0], spans=[(1, 3)], logprobs=[-1.0, -1.0])
    unsampled = Branch(tokens=[7, 40, 0], spans=[], logprobs=[])
    two_branches = one.model_copy(update={"branches": [*one.branches, unsampled, other]})
    asyncio.run(judge.judge([two_branches]))
    assert len(policy.requested) == 48 + 2


def test_local_judge_imports_no_torch() -> None:
    code = "import sys, engine.judge.local_judge; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

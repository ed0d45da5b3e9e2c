"""Every metric of `step.finished`: its unit, what it says, what a worrying value looks like.

The one place that documents them: the studio's charts and its help page read it, and the tests
refuse a step metric that is not here. `*` stands for a name that the project or the loop gives.
"""

from typing import Literal, NamedTuple

Group = Literal["Reward", "Learning", "Policy drift", "Length", "Speed"]


class Metric(NamedTuple):
    key: str
    group: Group
    unit: str
    """Empty for a plain number; `share` is between 0 and 1."""
    words: str
    """One line of plain English."""
    worry: str = ""
    """When to look closer; empty where no value is bad by itself."""


METRICS: tuple[Metric, ...] = (
    Metric("reward/mean", "Reward", "", "Mean reward of the step's scored attempts."),
    Metric("reward/std", "Reward", "", "Standard deviation of the rewards of all attempts."),
    Metric("reward/max", "Reward", "", "The best reward of the step."),
    Metric("reward/part/*", "Reward", "", "Mean of one named part of the reward."),
    Metric("script/*", "Reward", "", "What a script outside has logged, by its own names."),
    Metric(
        "groups/std_mean",
        "Reward",
        "",
        "How much the attempts at one scenario differ, on average.",
        "near 0: siblings score alike, so there is little to learn from",
    ),
    Metric(
        "groups/no_signal",
        "Reward",
        "share",
        "Groups whose attempts all score alike: they teach nothing.",
        "above 30 %",
    ),
    Metric(
        "judge/rules",
        "Reward",
        "",
        "How far judge and rules put siblings in the same order: 1 the same, 0 unrelated.",
        "falls while the judge's part rises: the agent may be pleasing the judge",
    ),
    Metric(
        "judge/local",
        "Reward",
        "share",
        "Held-out pairs that the local judge puts in the right order.",
        "below judge.local_least it does not judge",
    ),
    Metric(
        "judge/canaries",
        "Reward",
        "share",
        "Planted bad attempts that the judge did not fall for.",
        "below 1",
    ),
    Metric(
        "watch/addresses_judge",
        "Reward",
        "share",
        "Attempts that seem to speak to a grader.",
        "above 0",
    ),
    Metric(
        "watch/repetition",
        "Reward",
        "share",
        "Phrases of four words that the same attempt has said before.",
        "rises while the reward rises",
    ),
    Metric("watch/tool_calls", "Reward", "calls", "Tools that an attempt calls, on average."),
    Metric("groups/labelled", "Reward", "groups", "Groups that you have spoken about."),
    Metric("groups/again", "Reward", "groups", "Corrected older groups that were trained again."),
    Metric("trajectories", "Reward", "attempts", "All attempts of the step."),
    Metric(
        "unscored",
        "Reward",
        "attempts",
        "Attempts without a reward, left out of every mean.",
        "above one in ten",
    ),
    Metric(
        "loss",
        "Learning",
        "",
        "What the update minimises; near 0 by design, and no measure of success.",
        "jumps by a power of ten",
    ),
    Metric(
        "grad_norm",
        "Learning",
        "",
        "Size of the update before it is cut to train.algorithm.max_grad_norm.",
        "many times its usual size, or cut at every step",
    ),
    Metric("lr", "Learning", "", "Learning rate of the step."),
    Metric(
        "validation/loss",
        "Learning",
        "nats",
        "Mean loss of a token of the held-out demonstrations; no update learns from them.",
        "rises while the loss falls: it learns them by heart",
    ),
    Metric("epoch", "Learning", "", "Passes over the demonstrations so far."),
    Metric("tokens/trained", "Length", "tokens", "Tokens of demonstrations that the step learned."),
    Metric(
        "entropy",
        "Learning",
        "nats",
        "Uncertainty per token: how many answers it still considers.",
        "a fall to a tenth and below 0.05: it has stopped trying other answers",
    ),
    Metric(
        "masked",
        "Policy drift",
        "share",
        "Tokens that the correction left out of the update.",
        "above 10 %",
    ),
    Metric(
        "ratio/mean",
        "Policy drift",
        "",
        "Trainer's over sampler's probability of the sampled tokens, on average.",
        "outside 0.9 to 1.1",
    ),
    Metric("ratio/p1", "Policy drift", "", "1 % of the tokens have a smaller ratio."),
    Metric(
        "ratio/p50",
        "Policy drift",
        "",
        "The ratio of the token in the middle.",
        "outside 0.99 to 1.01",
    ),
    Metric("ratio/p99", "Policy drift", "", "1 % of the tokens have a larger ratio.", "above 2"),
    Metric(
        "ratio/max",
        "Policy drift",
        "",
        "The largest ratio of one token.",
        "above 10: single tokens would rule the update were they not cut",
    ),
    Metric(
        "clip/low",
        "Policy drift",
        "share",
        "Tokens whose ratio is below the clip range.",
        "above 10 %",
    ),
    Metric(
        "clip/high",
        "Policy drift",
        "share",
        "Tokens whose ratio is above the clip range.",
        "above 10 %",
    ),
    Metric(
        "logprob_gap/mean",
        "Policy drift",
        "nats",
        "How far sampler and trainer differ on a sampled token, on average.",
        "above 0.001 in float32, above 0.1 in bfloat16",
    ),
    Metric("logprob_gap/p99", "Policy drift", "nats", "1 % of the sampled tokens differ by more."),
    Metric(
        "logprob_gap/max",
        "Policy drift",
        "nats",
        "How far they differ on one token at most.",
        "above 0.001 in float32, above 0.5 in bfloat16",
    ),
    Metric(
        "kl/sampler",
        "Policy drift",
        "nats",
        "KL divergence from the sampler to the trainer, per token (k3 estimate).",
        "above 0.01",
    ),
    Metric(
        "kl",
        "Policy drift",
        "nats",
        "KL divergence to the untrained model, where train.algorithm.kl asks for it.",
        "a steep rise while validation falls",
    ),
    Metric(
        "ess",
        "Policy drift",
        "share",
        "Effective sample size: the share of tokens that carry the update.",
        "below 50 %",
    ),
    Metric(
        "publish_gap",
        "Policy drift",
        "nats",
        "Sampler against trainer on a fixed probe, after the update.",
        "the run stops where it is larger than rounding explains",
    ),
    Metric(
        "publish_moved",
        "Policy drift",
        "nats",
        "How far the update moved the policy on a fixed text; the vLLM server must have moved too.",
    ),
    Metric(
        "tokens/completion_mean", "Length", "tokens", "Tokens that the model wrote per attempt."
    ),
    Metric("tokens/completion_p10", "Length", "tokens", "One attempt in ten is shorter."),
    Metric("tokens/completion_p50", "Length", "tokens", "Half of the attempts are shorter."),
    Metric("tokens/completion_p90", "Length", "tokens", "One attempt in ten is longer."),
    Metric(
        "truncated",
        "Length",
        "share",
        "Attempts that a token limit cut short.",
        "above 25 %: they are scored for half an answer",
    ),
    Metric(
        "truncated/*",
        "Length",
        "share",
        "Rollouts cut by one limit: max_tokens of training, the agent's own, or the context.",
    ),
    Metric(
        "goodput/train",
        "Speed",
        "share",
        "Work that training cannot do without, of what the machine could do in the time.",
        "below 10 % on a CPU: the batch is small, or other work takes the cores",
    ),
    Metric(
        "hardware/train",
        "Speed",
        "share",
        "The same with padding and repeated prefixes, which keep it busy for nothing.",
    ),
    Metric(
        "goodput/sample",
        "Speed",
        "share",
        "Shortest time that memory and cores allow for this sampling, of the time it took.",
        "below 5 %: few attempts are sampled at once, or other work takes the cores",
    ),
    Metric("hardware/sample", "Speed", "share", "The same with padding."),
    Metric("rows/sample", "Speed", "attempts", "Attempts that were sampled at once, on average."),
    Metric(
        "sharing/train",
        "Speed",
        "share",
        "Tokens trained on, of those it would be without sharing; lower is less work.",
        "100 % although attempts share a prompt: raise train.batch_tokens",
    ),
    Metric(
        "sharing/sample",
        "Speed",
        "share",
        "Prompt tokens computed, of all prompt tokens; the rest was there already.",
    ),
    Metric("tokens/forwarded", "Speed", "tokens", "Tokens that went through the trainer."),
    Metric("tokens_per_s/sample", "Speed", "tokens/s", "Tokens written per second of rollouts."),
    Metric("tokens_per_s/train", "Speed", "tokens/s", "Trained tokens per second of training."),
    Metric("time_s/step", "Speed", "s", "The whole step."),
    Metric("time_s/sampling", "Speed", "s", "The part of it in which the sampler computed."),
    Metric(
        "staleness",
        "Policy drift",
        "updates",
        "How many updates older the weights were that began the attempts, on average.",
        "at most train.staleness",
    ),
    Metric("time_s/switch", "Speed", "s", "The card's change of hands from sampler to trainer."),
    Metric("time_s/*", "Speed", "s", "One phase of the step."),
)

_BY_KEY = {metric.key: metric for metric in METRICS}


def metric(key: str) -> Metric | None:
    """What a key of `step.finished` means; None where nobody has said so."""
    return _BY_KEY.get(key) or _BY_KEY.get(f"{key.rpartition('/')[0]}/*")

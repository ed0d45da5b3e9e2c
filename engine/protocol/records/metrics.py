"""Every metric of `step.finished`: unit, definition, and threshold of concern.

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
    """Definition in one sentence."""
    worry: str = ""
    """Values of concern; empty if no value is bad by itself."""


METRICS: tuple[Metric, ...] = (
    Metric("reward/mean", "Reward", "", "Mean reward of the scored trajectories of the step."),
    Metric("reward/std", "Reward", "", "Standard deviation of the rewards of all trajectories."),
    Metric("reward/max", "Reward", "", "Highest reward of the step."),
    Metric("reward/part/*", "Reward", "", "Mean of one named part of the reward."),
    Metric("script/*", "Reward", "", "Metric logged by an ART script, under its own name."),
    Metric(
        "groups/std_mean",
        "Reward",
        "",
        "Mean standard deviation of the rewards within a group.",
        "near 0: rewards within groups are almost equal, so the gradient is small",
    ),
    Metric(
        "groups/no_signal",
        "Reward",
        "share",
        "Groups without signal: all rewards are equal, so they contribute no gradient.",
        "above 30 %",
    ),
    Metric(
        "judge/rules",
        "Reward",
        "",
        "Rank agreement of judge and rules within groups: 1 equal, 0 unrelated.",
        "falls while the judge's reward rises: possible reward hacking",
    ),
    Metric(
        "judge/local",
        "Reward",
        "share",
        "Held-out pairs that the local judge orders correctly.",
        "below judge.local_least the local judge is not used",
    ),
    Metric(
        "judge/canaries",
        "Reward",
        "share",
        "Canary trajectories that the judge ranked low.",
        "below 1",
    ),
    Metric(
        "watch/addresses_judge",
        "Reward",
        "share",
        "Trajectories with text addressed to a grader.",
        "above 0",
    ),
    Metric(
        "watch/repetition",
        "Reward",
        "share",
        "Four-word phrases repeated within a trajectory.",
        "rises while the reward rises",
    ),
    Metric("watch/tool_calls", "Reward", "calls", "Mean number of tool calls per trajectory."),
    Metric("groups/labelled", "Reward", "groups", "Groups with a human label."),
    Metric(
        "groups/again",
        "Reward",
        "groups",
        "Relabelled groups of earlier steps that were trained again.",
    ),
    Metric("trajectories", "Reward", "trajectories", "All trajectories of the step."),
    Metric(
        "unscored",
        "Reward",
        "trajectories",
        "Trajectories without a valid reward, excluded from every mean.",
        "above 10 %",
    ),
    Metric(
        "loss",
        "Learning",
        "",
        "Value of the minimized loss; near 0 by design, not a measure of success.",
        "jumps by a factor of ten",
    ),
    Metric(
        "grad_norm",
        "Learning",
        "",
        "Gradient norm before clipping to train.algorithm.max_grad_norm.",
        "many times its usual value, or clipped at every step",
    ),
    Metric("lr", "Learning", "", "Learning rate of the step."),
    Metric(
        "validation/loss",
        "Learning",
        "nats",
        "Mean loss per token on held-out demonstrations, which are never trained on.",
        "rises while the training loss falls: overfitting",
    ),
    Metric("epoch", "Learning", "", "Passes over the demonstrations so far."),
    Metric("tokens/trained", "Length", "tokens", "Demonstration tokens trained in the step."),
    Metric(
        "entropy",
        "Learning",
        "nats",
        "Mean entropy per token: how much the policy still explores.",
        "a fall to a tenth and below 0.05: exploration has stopped",
    ),
    Metric(
        "masked",
        "Policy drift",
        "share",
        "Tokens masked by the importance-sampling correction.",
        "above 10 %",
    ),
    Metric(
        "ratio/mean",
        "Policy drift",
        "",
        "Mean importance ratio: trainer's over sampler's probability of a sampled token.",
        "outside 0.9 to 1.1",
    ),
    Metric("ratio/p1", "Policy drift", "", "1st percentile of the importance ratio."),
    Metric("ratio/p50", "Policy drift", "", "Median importance ratio.", "outside 0.99 to 1.01"),
    Metric("ratio/p99", "Policy drift", "", "99th percentile of the importance ratio.", "above 2"),
    Metric(
        "ratio/max",
        "Policy drift",
        "",
        "Largest importance ratio of a token.",
        "above 10: single tokens would dominate the update without truncation",
    ),
    Metric(
        "clip/low",
        "Policy drift",
        "share",
        "Tokens with a ratio below the clip range.",
        "above 10 %",
    ),
    Metric(
        "clip/high",
        "Policy drift",
        "share",
        "Tokens with a ratio above the clip range.",
        "above 10 %",
    ),
    Metric(
        "logprob_gap/mean",
        "Policy drift",
        "nats",
        "Mean difference of sampler and trainer log-probs of a sampled token.",
        "above 0.001 in float32, above 0.1 in bfloat16",
    ),
    Metric("logprob_gap/p99", "Policy drift", "nats", "99th percentile of that difference."),
    Metric(
        "logprob_gap/max",
        "Policy drift",
        "nats",
        "Largest difference on one token.",
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
        "KL divergence to the base model; computed if train.algorithm.kl is above 0.",
        "a steep rise while validation falls",
    ),
    Metric(
        "ess",
        "Policy drift",
        "share",
        "Effective sample size: share of tokens that determine the update.",
        "below 50 %",
    ),
    Metric(
        "publish_gap",
        "Policy drift",
        "nats",
        "Log-prob difference of sampler and trainer on a fixed text after the update.",
        "the run stops if rounding does not explain it",
    ),
    Metric(
        "publish_moved",
        "Policy drift",
        "nats",
        "Change of the policy's log-probs on a fixed text; vLLM has to show the same.",
    ),
    Metric("tokens/completion_mean", "Length", "tokens", "Mean completion tokens per trajectory."),
    Metric("tokens/completion_p10", "Length", "tokens", "10th percentile of completion tokens."),
    Metric("tokens/completion_p50", "Length", "tokens", "Median completion tokens."),
    Metric("tokens/completion_p90", "Length", "tokens", "90th percentile of completion tokens."),
    Metric(
        "truncated",
        "Length",
        "share",
        "Trajectories truncated by a token limit.",
        "above 25 %: incomplete answers are scored",
    ),
    Metric(
        "truncated/*",
        "Length",
        "share",
        "Trajectories truncated by one limit: train.max_tokens, the agent's, or the context.",
    ),
    Metric(
        "goodput/train",
        "Speed",
        "share",
        "Necessary training work as a share of the machine's peak.",
        "below 10 % on a CPU: small batches, or other processes on the cores",
    ),
    Metric(
        "hardware/train",
        "Speed",
        "share",
        "All executed training work, including padding and repeated prefixes, as such a share.",
    ),
    Metric(
        "goodput/sample",
        "Speed",
        "share",
        "Shortest possible sampling time as a share of the measured one.",
        "below 5 %: few concurrent rollouts, or other processes on the cores",
    ),
    Metric("hardware/sample", "Speed", "share", "The same, including padding."),
    Metric("rows/sample", "Speed", "sequences", "Mean number of sequences sampled concurrently."),
    Metric(
        "sharing/train",
        "Speed",
        "share",
        "Computed tokens as a share of those without prefix sharing; lower is less work.",
        "100 % although prompts are shared: raise train.batch_tokens",
    ),
    Metric(
        "sharing/sample",
        "Speed",
        "share",
        "Computed prompt tokens as a share of all; the others were cached.",
    ),
    Metric("tokens/forwarded", "Speed", "tokens", "Tokens in the trainer's forward passes."),
    Metric(
        "tokens_per_s/sample",
        "Speed",
        "tokens/s",
        "Sampled tokens per second of the sampling phase.",
    ),
    Metric(
        "tokens_per_s/train",
        "Speed",
        "tokens/s",
        "Trained tokens per second of the training phase.",
    ),
    Metric("time_s/step", "Speed", "s", "Duration of the step."),
    Metric("time_s/sampling", "Speed", "s", "Time in which the sampler computed."),
    Metric(
        "staleness",
        "Policy drift",
        "updates",
        "Mean number of updates between the sampling weights and the trained ones.",
        "at most train.staleness",
    ),
    Metric("time_s/switch", "Speed", "s", "Switching the GPU between sampler and trainer."),
    Metric("time_s/*", "Speed", "s", "Duration of one phase of the step."),
)

_BY_KEY = {metric.key: metric for metric in METRICS}


def metric(key: str) -> Metric | None:
    """Documentation of a key of `step.finished`; None for an unknown key."""
    return _BY_KEY.get(key) or _BY_KEY.get(f"{key.rpartition('/')[0]}/*")

"""Every metric of `step.finished`: unit, definition, and threshold of concern.

The one place that documents them: the studio's charts and its help page read it, and the tests
refuse a step metric that is not here. `*` stands for a name that the project or the loop gives.
"""

from typing import Literal, NamedTuple

Group = Literal["Reward", "Learning", "Policy drift", "Length", "Speed"]


ROLLOUT_COUNTS = ("reasoning_tokens", "reasoning_closed", "malformed_calls", "capped_calls")
"""Counts that the gateway adds to the metrics of a trajectory; absent if 0."""


class Metric(NamedTuple):
    key: str
    group: Group
    unit: str
    """Empty for a plain number; `share` is between 0 and 1."""
    words: str
    """Definition in one sentence."""
    worry: str = ""
    """Values of concern; empty if no value is bad by itself."""


ROWS: dict[Group, tuple[tuple[str, ...], ...]] = {
    "Reward": (
        ("reward/mean", "", "Mean reward of the scored trajectories of the step."),
        ("reward/std", "", "Standard deviation of the rewards of all trajectories."),
        ("reward/max", "", "Highest reward of the step."),
        ("reward/part/*", "", "Mean of one named part of the reward."),
        (
            "label/*",
            "",
            "Custom label field: mean of a number, or share of a choice (end of the key).",
        ),
        ("agent/*", "", "Mean of a metric that the agent returned, under its own name."),
        ("script/*", "", "Metric logged by an ART script, under its own name."),
        (
            "groups/std_mean",
            "",
            "Mean standard deviation of the rewards within a group.",
            "near 0: rewards within groups are almost equal, so the gradient is small",
        ),
        (
            "groups/no_signal",
            "share",
            "Share of groups without signal (all rewards equal), which contribute no gradient.",
            "above 30 %",
        ),
        (
            "judge/rules",
            "",
            "Rank correlation of judge and rule-based rewards in groups (1: same, 0: unrelated).",
            "falls while the judge's reward rises: possible reward hacking",
        ),
        (
            "judge/local",
            "share",
            "Share of held-out pairs that the local judge ranks correctly.",
            "below judge.local_least the local judge is not used",
        ),
        (
            "validation/win_rate",
            "share",
            "Probability that the judge prefers this validation's rollouts to the baseline's.",
            "the whole confidence interval is below 50 %",
        ),
        (
            "validation/criterion/*",
            "",
            "Mean score (0 to 1) by the judge for one criterion of the rubric, in validation.",
            "falls while the win rate rises: the judge prefers something else",
        ),
        (
            "judge/canaries",
            "share",
            "Share of canary trajectories ranked low by the judge.",
            "below 1",
        ),
        (
            "watch/addresses_judge",
            "share",
            "Share of trajectories whose text addresses the judge.",
            "above 0",
        ),
        (
            "watch/repetition",
            "share",
            "Share of four-word phrases that are repeated in a trajectory.",
            "rises while the reward rises",
        ),
        ("watch/tool_calls", "calls", "Mean number of tool calls per trajectory."),
        (
            "malformed_calls",
            "share",
            "Share of trajectories with a tool call that could not be parsed.",
            "above 10 %: the agent gets these calls as text",
        ),
        ("groups/labelled", "groups", "Groups with a human label."),
        ("groups/again", "groups", "Relabelled groups of earlier steps that were trained again."),
        ("trajectories", "trajectories", "Number of trajectories in the step, scored or not."),
        (
            "unscored",
            "trajectories",
            "Trajectories without a valid reward, excluded from every mean.",
            "above 10 %",
        ),
    ),
    "Learning": (
        (
            "loss",
            "",
            "Value of the minimized loss; near 0 by design, not a measure of success.",
            "jumps by a factor of ten",
        ),
        (
            "grad_norm",
            "",
            "Gradient norm before clipping to train.algorithm.max_grad_norm.",
            "many times its usual value, or clipped at every step",
        ),
        ("lr", "", "Learning rate of the step."),
        (
            "validation/loss",
            "nats",
            "Mean loss per token on held-out demonstrations, which are never trained on.",
            "rises while the training loss falls: overfitting",
        ),
        ("epoch", "", "Passes over the demonstrations so far."),
        (
            "entropy",
            "nats",
            "Mean entropy per token: how much the policy still explores.",
            "falls to a tenth and below 0.05: exploration has stopped",
        ),
    ),
    "Length": (
        ("tokens/trained", "tokens", "Demonstration tokens that the step trained on."),
        ("tokens/completion_mean", "tokens", "Mean completion tokens per trajectory."),
        ("tokens/completion_p10", "tokens", "10th percentile of completion tokens."),
        ("tokens/completion_p50", "tokens", "Median completion tokens."),
        ("tokens/completion_p90", "tokens", "90th percentile of completion tokens."),
        (
            "tokens/reasoning_mean",
            "tokens",
            "Mean reasoning tokens per trajectory; only if there are any.",
            "falls to 0: the model has stopped reasoning",
        ),
        (
            "reasoning_closed",
            "share",
            "Share of answers whose reasoning was closed by the thinking budget.",
            "above 50 %: most answers follow unfinished reasoning",
        ),
        (
            "capped_calls",
            "share",
            "Share of trajectories with a model call that requested more than train.max_tokens.",
        ),
        (
            "truncated",
            "share",
            "Share of trajectories truncated by a token limit.",
            "above 25 %: incomplete answers are scored",
        ),
        (
            "truncated/*",
            "share",
            "Share truncated by this limit: train.max_tokens, the agent's own, or the context.",
        ),
    ),
    "Policy drift": (
        (
            "masked",
            "share",
            "Share of tokens masked by the importance-sampling correction.",
            "above 10 %",
        ),
        (
            "ratio/mean",
            "",
            "Mean importance ratio: trainer's over sampler's probability of a sampled token.",
            "outside 0.9 to 1.1",
        ),
        ("ratio/p1", "", "1st percentile of the importance ratio."),
        ("ratio/p50", "", "Median importance ratio.", "outside 0.99 to 1.01"),
        ("ratio/p99", "", "99th percentile of the importance ratio.", "above 2"),
        (
            "ratio/max",
            "",
            "Largest importance ratio of a token.",
            "above 10: single tokens would dominate the update without truncation",
        ),
        ("clip/low", "share", "Share of tokens with a ratio below the clip range.", "above 10 %"),
        ("clip/high", "share", "Share of tokens with a ratio above the clip range.", "above 10 %"),
        (
            "logprob_gap/mean",
            "nats",
            "Mean difference between sampler and trainer log-probs of a sampled token.",
            "above 0.001 in float32, above 0.1 in bfloat16",
        ),
        ("logprob_gap/p99", "nats", "99th percentile of the log-prob difference per token."),
        (
            "logprob_gap/max",
            "nats",
            "Largest log-prob difference of a token.",
            "above 0.001 in float32, above 0.5 in bfloat16",
        ),
        (
            "kl/sampler",
            "nats",
            "KL divergence from the sampler to the trainer, per token (k3 estimate).",
            "above 0.01",
        ),
        (
            "kl",
            "nats",
            "KL divergence to the base model; computed if train.algorithm.kl is above 0.",
            "a steep rise while validation falls",
        ),
        (
            "ess",
            "share",
            "Effective sample size: share of tokens that determine the update.",
            "below 50 %",
        ),
        (
            "publish_gap",
            "nats",
            "Log-prob difference between sampler and trainer on a fixed text after the update.",
            "the run stops if it exceeds rounding errors",
        ),
        (
            "publish_moved",
            "nats",
            "Change of the policy's log-probs on a fixed text; vLLM must show the same change.",
        ),
        (
            "staleness",
            "updates",
            "Mean number of updates between the sampling weights and the trained weights.",
            "at most train.staleness",
        ),
    ),
    "Speed": (
        (
            "goodput/train",
            "share",
            "Necessary training work as a share of the machine's peak.",
            "below 10 % on a CPU: small batches, or other processes on the cores",
        ),
        (
            "hardware/train",
            "share",
            "Executed training work, with padding and repeated prefixes, as a share of the peak.",
        ),
        (
            "goodput/sample",
            "share",
            "Shortest possible sampling time as a share of the measured one.",
            "below 5 %: few concurrent rollouts, or other processes on the cores",
        ),
        ("hardware/sample", "share", "As goodput/sample, but padding counts as necessary work."),
        ("rows/sample", "sequences", "Mean number of sequences sampled concurrently."),
        (
            "sharing/train",
            "share",
            "Computed tokens as a share of those without prefix sharing; lower is less work.",
            "If this is 100 % although prompts are shared, raise train.batch_tokens",
        ),
        (
            "sharing/sample",
            "share",
            "Computed prompt tokens as a share of all prompt tokens; the rest were cached.",
        ),
        ("tokens/forwarded", "tokens", "Tokens in the trainer's forward passes."),
        ("tokens_per_s/sample", "tokens/s", "Sampled tokens per second of the sampling phase."),
        ("tokens_per_s/train", "tokens/s", "Trained tokens per second of the training phase."),
        ("time_s/step", "s", "Duration of the step."),
        ("time_s/sampling", "s", "Time during which the sampler was busy."),
        ("time_s/switch", "s", "Time for switching the GPU between sampler and trainer."),
        ("time_s/*", "s", "Duration of one phase of the step."),
    ),
}
"""Key, unit, definition and, for some, values of concern, by group."""
METRICS = tuple(Metric(key, group, *rest) for group, rows in ROWS.items() for key, *rest in rows)

_BY_KEY = {metric.key: metric for metric in METRICS}


def metric(key: str) -> Metric | None:
    """Documentation of a metric by its key in `step.finished`; None for an unknown key."""
    if known := _BY_KEY.get(key):
        return known
    parts = key.split("/")
    prefixes = ("/".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
    return next((row for one in prefixes if (row := _BY_KEY.get(f"{one}/*"))), None)

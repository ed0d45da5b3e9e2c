"""Refusals of what a cluster cannot carry, by the name of the setting."""

from engine.policy.base import PolicySpec, SampleRequest, TrainBatch
from engine.protocol.config.algorithm import ValueCredit
from engine.protocol.config.project import ProjectConfig
from engine.protocol.problems import PolicyError, RolloutError
from engine.protocol.records.clusters import ClusterProfile


def refuse_config(config: ProjectConfig) -> None:
    """Refuse settings that no cluster can carry. Raises PolicyError."""
    algorithm = config.train.algorithm
    if isinstance(algorithm.credit, ValueCredit):
        raise no_value_head()
    if algorithm.entropy:
        raise _no_entropy()
    if config.train.temperature != 1:
        raise _no_temperature()
    if config.model.adapt_experts:
        raise PolicyError.of(
            "cluster.no_experts",
            "A cluster decides itself which layers its adapter covers.",
            "Set model.adapt_experts to false, or train on this machine.",
            where="model.adapt_experts",
        )


def refuse_shape(spec: PolicySpec) -> None:
    if spec.value_lr is not None:
        raise no_value_head()


def refuse_alpha(theirs: float, ours: float) -> None:
    """Refuse an adapter scale that the cluster does not apply. Raises PolicyError."""
    if theirs != ours:
        raise PolicyError.of(
            "cluster.alpha",
            f"The cluster scales adapters by α = {theirs:g}, but model.alpha is {ours:g}.",
            f"Set model.alpha to {theirs:g}.",
            where="model.alpha",
        )


def require_pinned(cluster: ClusterProfile, staleness: int) -> None:
    """Refuse sampling during an update on a cluster whose snapshots follow the weights in training.
    Raises PolicyError."""
    if staleness and not cluster.pinned:
        raise PolicyError.of(
            "cluster.not_pinned",
            f"{cluster.name} does not keep snapshots apart from the weights in training, so it "
            "cannot sample while it trains.",
            "Set train.staleness to 0.",
            where="train.staleness",
        )


def refuse_batch(batch: TrainBatch) -> None:
    algorithm = batch.algorithm
    if any(item.images for item in batch.items):
        raise PolicyError.of(
            "cluster.no_images",
            "A cluster trains on text only.",
            "Leave examples with images out, or train on this machine.",
        )
    if batch.objective == "supervised":
        return
    if isinstance(algorithm.credit, ValueCredit):
        raise no_value_head()
    if algorithm.entropy:
        raise _no_entropy()
    if batch.temperature != 1:
        raise _no_temperature()


def refuse_request(request: SampleRequest) -> None:
    if request.grammar is not None:
        raise no_grammars()
    if request.images:
        raise RolloutError.of("cluster.no_images", "A cluster samples from text only.")
    if request.top_logprobs:
        raise RolloutError.of(
            "cluster.no_top_logprobs",
            "A cluster returns log-probs of sampled tokens only.",
            "Set top_logprobs to 0 in the agent's request.",
        )


def no_grammars() -> RolloutError:
    return RolloutError.of(
        "grammar.not_on_cluster",
        "A cluster cannot constrain a completion by a schema or a grammar.",
        "Leave response_format and tool_choice out, or train on this machine.",
    )


def no_value_head() -> PolicyError:
    return PolicyError.of(
        "cluster.no_value_head",
        "A cluster has no value head.",
        'Set train.algorithm.credit to "trajectory", or train on this machine.',
        where="train.algorithm.credit",
    )


def not_there(why: str) -> PolicyError:
    return PolicyError.of(
        "cluster.no_state",
        f"This checkpoint cannot be continued on this cluster: {why}.",
        "Continue from a checkpoint of a run on this cluster, or train on this machine.",
    )


def _no_entropy() -> PolicyError:
    return PolicyError.of(
        "cluster.no_entropy",
        "A cluster returns no entropies, which an entropy bonus needs.",
        "Set train.algorithm.entropy to 0, or train on this machine.",
        where="train.algorithm.entropy",
    )


def _no_temperature() -> PolicyError:
    return PolicyError.of(
        "cluster.temperature",
        "A cluster returns log-probs at temperature 1 only.",
        "Set train.temperature to 1, or train on this machine.",
        where="train.temperature",
    )

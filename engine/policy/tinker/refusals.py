"""What a cluster cannot carry, refused by name."""

from engine.policy.base import PolicySpec, SampleRequest, TrainBatch
from engine.protocol.config.algorithm import ValueCredit
from engine.protocol.problems import PolicyError, RolloutError


def refuse_shape(spec: PolicySpec) -> None:
    if spec.value_lr is not None:
        raise no_value_head()


def refuse_batch(batch: TrainBatch) -> None:
    algorithm = batch.algorithm
    if batch.objective == "supervised":
        return
    if isinstance(algorithm.credit, ValueCredit):
        raise no_value_head()
    if algorithm.entropy:
        raise PolicyError.of(
            "cluster.no_entropy",
            "A cluster returns no entropies, which an entropy bonus needs.",
            "Set train.algorithm.entropy to 0, or train on this machine.",
            where="train.algorithm.entropy",
        )
    if batch.temperature != 1:
        raise PolicyError.of(
            "cluster.temperature",
            "A cluster returns log-probs at temperature 1 only.",
            "Set agent.temperature to 1, or train on this machine.",
        )


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

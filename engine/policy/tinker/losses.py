"""Loss process of a cluster: `python -m engine.policy.tinker.losses LINE LIFE`, with the
descriptors of the socket for requests and of the life pipe.

A cluster returns log-probs and adds gradients; the loss between them is computed here, by the same
code as the torch trainer's.
"""

import json
import os
import socket
import sys
from typing import Any

import torch

from engine.policy.base import Pair, TrainBatch
from engine.policy.rows import unpack_rows
from engine.policy.torch.training.bradley_terry import fit
from engine.policy.torch.training.terms import Computed, kept, loss_terms, metrics_of, numbers_of
from engine.runtime.life_pipe import exit_with_engine

CPU = torch.device("cpu")


def gradient(
    batch: TrainBatch, logprobs: list[list[float]], reference: list[list[float]] | None
) -> tuple[list[list[float]], dict[str, float]]:
    """Derivative of the loss (Σ token losses / normaliser) with respect to the log-prob of each
    trained token, as rows like `logprobs`, and the metrics of the batch. `reference`: log-probs of
    the untrained model, for a KL term."""
    counts = [len(row) for row in logprobs]
    logprobs_M = _flat(logprobs).requires_grad_()
    reference_M = None if reference is None else _flat(reference)
    given = numbers_of(batch.items, batch.objective == "supervised", CPU)
    terms = loss_terms(batch, given, Computed(logprobs_M, reference_M=reference_M))
    (gradient_M,) = torch.autograd.grad(terms.losses_M.sum() / batch.normaliser, logprobs_M)
    rows = [row.tolist() for row in gradient_M.split(counts)]
    return rows, metrics_of(batch, [kept(terms, 0)])


def _flat(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor([value for row in rows for value in row])


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    if message["op"] == "gradient":
        batch = TrainBatch.model_validate(message["batch"])
        rows, metrics = gradient(batch, message["logprobs"], message["reference"])
        return {"gradient": rows, "metrics": metrics}
    features_ND = torch.tensor(unpack_rows(message["rows"], message["count"]))
    return fit(features_ND, [Pair(*pair) for pair in message["pairs"]]).model_dump()


def main() -> None:
    line, life = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    exit_with_engine(life)
    torch.set_num_threads(1)
    with line.makefile("rb") as lines:
        for text in lines:
            message = json.loads(text)
            if message["op"] != "cancel":
                reply = {"id": message["id"], "ok": _answer(message)}
                line.sendall(json.dumps(reply).encode() + b"\n")
    os._exit(0)


if __name__ == "__main__":
    main()

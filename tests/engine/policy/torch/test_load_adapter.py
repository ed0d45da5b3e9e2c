"""Loading only the adapter of a checkpoint is enough to sample with its weights."""

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.policy.base import PolicySpec, ScoreBatch, TrainBatch, TrainItem
from engine.policy.torch.serve import PolicyServer
from engine.protocol.config.project import ModelConfig

ITEM = TrainItem(
    tokens=[5, 6, 7, 8, 9], spans=[(2, 5)], logprobs=[-2.0, -2.0, -2.0], advantages=[1.0, 1.0, 1.0]
)


@pytest.fixture
def connection() -> Iterator["socket.socket"]:
    client_end, server_end = socket.socketpair()
    with client_end, server_end:
        yield server_end


def load_server(connection: "socket.socket", tiny_model: Path) -> PolicyServer:
    server = PolicyServer(connection)
    spec = PolicySpec(
        model_path=str(tiny_model), model=ModelConfig(dtype="float32", rank=4, alpha=8),
        seed=3, batch_tokens=64,
    )  # fmt: skip
    server._op_load(1, {"spec": spec.model_dump()})
    return server


def logprobs(server: PolicyServer) -> list[float]:
    batch = ScoreBatch(items=[ITEM]).model_dump()
    return list(server._op_score(2, {"batch": batch})["scores"][0]["logprobs"])


def test_loaded_adapter_computes_the_trained_logprobs(
    connection: "socket.socket", tiny_model: Path, tmp_path: Path
) -> None:
    trained, fresh = load_server(connection, tiny_model), load_server(connection, tiny_model)
    before = logprobs(trained)
    batch = TrainBatch(items=[ITEM], normaliser=3).model_dump()
    trained._op_forward_backward(3, {"batch": batch})
    trained._op_optim_step(4, {"step": {"lr": 1e-1}})
    assert logprobs(trained) != before == logprobs(fresh)
    trained._op_save(5, {"folder": str(tmp_path), "base_name": "tiny"})
    shutil.rmtree(tmp_path / "trainer")  # the optimizer's state is not needed
    fresh._op_load_adapter(6, {"folder": str(tmp_path / "adapter")})
    assert logprobs(fresh) == logprobs(trained)
    assert fresh._op_publish(7, {})["publish_gap"] < 1e-4

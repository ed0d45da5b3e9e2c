"""Policy process running out of memory while sampling: reported to all requests, and survived."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.policy.base import PolicySpec, SampleRequest
from engine.policy.torch.serve import PolicyServer
from engine.protocol.config.project import ModelConfig


def test_out_of_memory_while_sampling_is_reported_and_survived(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client_end, server_end = socket.socketpair()
    with client_end, server_end, client_end.makefile("rb") as answers:
        server = PolicyServer(server_end)
        spec = PolicySpec(
            model_path=str(tiny_model), model=ModelConfig(dtype="float32", rank=4), seed=3,
             batch_tokens=64,
        )  # fmt: skip
        server._op_load(1, {"spec": spec.model_dump()})
        request = SampleRequest(
            tokens=[5, 6, 7], max_tokens=3, ignore_eos=True, seed=1
        ).model_dump()

        def out_of_memory(plan: Any) -> torch.Tensor:
            raise torch.OutOfMemoryError("tried to allocate 2.00 GiB")

        with monkeypatch.context() as patch:
            patch.setattr(server._loaded(), "sampled_hidden", out_of_memory)
            for number in (7, 8):
                server._op_sample(number, {"request": request})
            server._sample()
        errors = [json.loads(answers.readline()) for _ in range(2)]
        assert [one["id"] for one in errors] == [7, 8]
        assert {one["error"]["code"] for one in errors} == {"policy.out_of_memory"}
        assert not server._sampler.busy
        server._op_sample(9, {"request": request})
        while server._sampler.busy:
            server._sample()
        last = [json.loads(answers.readline()) for _ in range(4)]
        assert last[-1] == {"id": 9, "ok": {"finish": "length"}}

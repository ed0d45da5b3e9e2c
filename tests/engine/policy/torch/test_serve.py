"""Errors while sampling are reported to the requests, and the policy process survives them."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.policy.base import PolicySpec, SampleRequest
from engine.policy.torch.serve import PolicyServer
from engine.protocol.config.project import ModelConfig
from tests.engine.policy.torch.grammars import regex
from tests.support.seeing import PLACEHOLDER, image_input, save_model


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


def test_grammar_that_fails_is_reported_to_its_request(tiny_model: Path) -> None:
    client_end, server_end = socket.socketpair()
    with client_end, server_end, client_end.makefile("rb") as answers:
        server = PolicyServer(server_end)
        spec = PolicySpec(
            model_path=str(tiny_model), model=ModelConfig(dtype="float32", rank=4), seed=3,
             batch_tokens=64,
        )  # fmt: skip
        server._op_load(1, {"spec": spec.model_dump()})
        for number, grammar in [(7, regex("a{2}")), (8, regex("((")), (9, "a" * 70_000)]:
            request = SampleRequest(tokens=[5], max_tokens=9, seed=1, grammar=grammar)
            message = {"id": number, "op": "sample", "request": request.model_dump()}
            server._handle(message)
        while server._sampler.busy:
            server._sample()
        server._handle({"id": 10, "op": "check_grammar", "grammar": regex("b")})
        found = [json.loads(answers.readline()) for _ in range(7)]
        codes = {one["id"]: one["error"]["code"] for one in found if "error" in one}
        assert codes == {9: "grammar.too_long", 8: "grammar.invalid"}
        assert {"id": 7, "ok": {"finish": "stop"}} in found
        assert found[-1] == {"id": 10, "ok": {"ends": [2]}}


def test_vanished_image_is_reported_and_survived(tmp_path: Path) -> None:
    folder = save_model("qwen2_5_vl", tmp_path / "model")
    image = image_input(tmp_path / "images", 1, 1, (1, 4, 6))
    tokens = [5, *[PLACEHOLDER] * image.count, 6]
    client_end, server_end = socket.socketpair()
    with client_end, server_end, client_end.makefile("rb") as answers:
        server = PolicyServer(server_end)
        model = ModelConfig(dtype="float32", rank=4, max_context=256)
        spec = PolicySpec(model_path=str(folder), model=model, seed=3, batch_tokens=64)
        server._op_load(1, {"spec": spec.model_dump()})
        request = SampleRequest(tokens=tokens, images=[image], max_tokens=2, seed=1)
        server._op_sample(7, {"request": request.model_dump()})
        Path(image.file).unlink()
        server._sample()
        assert json.loads(answers.readline())["error"]["code"] == "images.unreadable"
        assert not server._sampler.busy
        image_input(tmp_path / "images", 1, 1, (1, 4, 6))
        server._op_sample(8, {"request": request.model_dump()})
        while server._sampler.busy:
            server._sample()
        last = [json.loads(answers.readline()) for _ in range(3)]
        assert last[-1] == {"id": 8, "ok": {"finish": "length"}}

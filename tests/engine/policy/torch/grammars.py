"""Structural tags for tests, and sampling with them."""

import json
from typing import Any

import torch
from torch import Tensor

from engine.policy.base import SampledToken, SampleRequest, TrainItem
from engine.policy.torch.model.grammar import unpack
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.sampling.sampler import Sampler
from engine.protocol.problems import PolicyError

PROMPT = [5, 6, 7, 40]


def tag(form: dict[str, Any]) -> str:
    return json.dumps({"type": "structural_tag", "format": form})


def regex(pattern: str) -> str:
    return tag({"type": "regex", "pattern": pattern})


def json_schema(schema: dict[str, Any]) -> str:
    return tag({"type": "json_schema", "json_schema": schema})


class Results:
    """Tokens, finish reasons and errors of the requests of one sampler, by their number."""

    def __init__(self, model: LoraModel, kind: type[Sampler] = Sampler) -> None:
        self.tokens: dict[int, list[SampledToken]] = {}
        self.finishes: dict[int, str] = {}
        self.errors: dict[int, PolicyError] = {}
        self.sampler = kind(model, model.eos_tokens, self._deliver, refuse=self.errors.__setitem__)

    def _deliver(self, number: int, token: SampledToken, finish: str | None) -> None:
        self.tokens.setdefault(number, []).append(token)
        if finish:
            self.finishes[number] = finish

    def run(self, requests: list[SampleRequest]) -> "Results":
        for number, request in enumerate(requests):
            self.sampler.add(number, request)
        while self.sampler.busy:
            self.sampler.step()
        return self

    def text(self, number: int) -> str:
        """Text of a completion without its end token; bytes are the tokens from 3 on."""
        return text_of([token.token for token in self.tokens[number][:-1]])


def text_of(tokens: list[int]) -> str:
    from tokenizers import pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = {0: "<|endoftext|>", 1: "<|im_start|>", 2: "<|im_end|>"}
    found = bytearray()
    for token in tokens:
        if token in special:
            found += special[token].encode()
        else:
            found.append(byte_of(alphabet[token - 3]))
    return found.decode(errors="replace")  # xgrammar lets bytes pass that UTF-8 does not have


def byte_of(character: str) -> int:
    """Byte of a character in the alphabet of byte-level BPE (GPT-2)."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {shown: byte for byte, shown in bytes_to_unicode().items()}[character]


def item_of(prompt: list[int], sampled: list[SampledToken], grammar: str | None) -> TrainItem:
    return TrainItem(
        tokens=prompt + [token.token for token in sampled],
        spans=[(len(prompt), len(prompt) + len(sampled))],
        logprobs=[token.logprob for token in sampled],
        grammars=[] if grammar is None else [(0, grammar)],
    )


def masked_logprobs(model: LoraModel, item: TrainItem, temperature: float = 1.0) -> Tensor:
    """Log-probs [T, V] of an item's trained tokens, by plain autograd on masked logits."""
    logits_SV = model.trained(input_ids=torch.tensor([item.tokens])).logits[0].float()
    grammars, parts = dict(item.grammars), []
    for index, (start, end) in enumerate(item.spans):
        logits_TV = logits_SV[start - 1 : end - 1] / temperature
        if index in grammars:
            masks = model.grammars.masks(grammars[index], item.tokens[start:end])
            allowed_TV = unpack(masks, logits_TV.shape[1])
            logits_TV = logits_TV.masked_fill(~allowed_TV, -torch.inf)
        parts.append(logits_TV.log_softmax(-1))
    return torch.cat(parts)

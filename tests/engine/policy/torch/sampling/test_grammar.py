"""Constrained sampling: every completion follows its grammar, log-probs are those of the masked
distribution, and a grammar that fails ends its own request only."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from engine.policy.base import MOST_GRAMMAR_CHARS, SampleRequest
from engine.policy.torch.model import grammar as grammar_module
from engine.policy.torch.model.model import LoraModel
from engine.policy.torch.sampling.sampler import AloneSampler, Sampler
from engine.protocol.problems import PolicyError
from tests.engine.policy.conftest import load
from tests.engine.policy.torch.grammars import PROMPT, Results, json_schema, regex, tag

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z][a-z]{0,7}$"},
        "note": {"type": "string", "pattern": "^.{0,20}$"},
        "size": {"type": "integer", "minimum": 0, "maximum": 99},
        "colour": {"enum": ["red", "green"]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["name", "note", "size", "colour", "tags"],
    "additionalProperties": False,
}
CALL = tag(
    {
        "type": "tag",
        "begin": {"type": "token", "token": "<|im_start|>"},
        "content": {"type": "json_schema", "json_schema": {"enum": [{"city": "Rome"}, {}]}},
        "end": {"type": "token", "token": "<|endoftext|>"},
    }
)

LETTER_A = 67
"""Token of the letter a in the tiny model's vocabulary."""


@pytest.fixture
def model(tiny_model: Path) -> LoraModel:
    return load(tiny_model)


def request(grammar: str | None, seed: int = 0, **fields: Any) -> SampleRequest:
    return SampleRequest(
        **{"tokens": PROMPT, "max_tokens": 300, "seed": seed, "grammar": grammar} | fields
    )


def test_json_always_follows_its_schema(model: LoraModel) -> None:
    compact = tag({"type": "json_schema", "json_schema": SCHEMA, "max_whitespace_cnt": 1})
    results = Results(model).run([request(compact, n, temperature=1.5) for n in range(50)])
    assert set(results.finishes.values()) == {"stop"}
    for number in range(50):
        value = json.loads(results.text(number))
        assert list(value) == SCHEMA["required"]
        assert re.fullmatch("[A-Z][a-z]{0,7}", value["name"])
        assert isinstance(value["note"], str)
        assert value["size"] in range(100)
        assert value["colour"] in ("red", "green")
        assert len(value["tags"]) <= 2
        assert all(isinstance(flag, bool) for flag in value["tags"])


@pytest.mark.parametrize("kind", [Sampler, AloneSampler])
def test_rows_of_one_batch_have_their_own_grammars(model: LoraModel, kind: type[Sampler]) -> None:
    word, number = regex("[a-c]{2,5}"), regex("-?[0-9]{1,4}")
    requests = [request(g, n, max_tokens=30) for n in range(3) for g in (word, number, None)]
    results = Results(model, kind).run(requests)
    for n in range(0, 9, 3):
        assert re.fullmatch("[a-c]{2,5}", results.text(n))
        assert re.fullmatch("-?[0-9]{1,4}", results.text(n + 1))
    alone = Results(model, kind).run(requests[2:3])
    assert [t.token for t in results.tokens[2]] == [t.token for t in alone.tokens[0]]


def test_tool_call_begins_and_ends_with_special_tokens(model: LoraModel) -> None:
    results = Results(model).run([request(CALL, n) for n in range(8)])
    for number, tokens in results.tokens.items():
        assert tokens[0].token == 1
        assert tokens[-2].token == 0
        assert tokens[-1].token == 2
        inner = results.text(number).removeprefix("<|im_start|>").removesuffix("<|endoftext|>")
        assert json.loads(inner) in ({"city": "Rome"}, {})


def test_probabilities_of_all_completions_sum_to_1(model: LoraModel) -> None:
    results = Results(model).run([request(regex("yes|no|maybe"), n) for n in range(300)])
    logprobs = {
        results.text(n): sum(token.logprob for token in tokens)
        for n, tokens in results.tokens.items()
    }
    assert set(logprobs) == {"yes", "no", "maybe"}
    assert math.log(sum(map(math.exp, logprobs.values()))) == pytest.approx(0, abs=1e-5)


def test_likeliest_tokens_are_those_of_the_masked_distribution(model: LoraModel) -> None:
    fields = {"temperature": 0, "top_logprobs": 5, "top_p": 0.9}
    tokens = Results(model).run([request(regex("[xyz]"), **fields)]).tokens[0]
    assert tokens[0].logprob == max(logprob for _, logprob in tokens[0].top)
    assert len(tokens[0].top) <= 3
    assert sum(math.exp(logprob) for _, logprob in tokens[0].top) == pytest.approx(1, abs=1e-5)
    assert tokens[1].top == [(2, pytest.approx(0, abs=1e-6))]


def test_completion_at_its_token_limit_is_cut(model: LoraModel) -> None:
    results = Results(model).run([request(regex("a*b"), max_tokens=1)])
    assert results.finishes == {0: "length"}


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        (regex("(["), "Unclosed"),
        (json_schema({"type": "nonsense"}), "nonsense"),
        ("{", "JSON"),
        (tag({"type": "poem"}), "poem"),
        (tag({"type": "grammar", "grammar": "root ::= root"}), "allows no token"),
        (regex("(" * 5000 + "a" + ")" * 5000), "Nest"),
        ('{"type":"structural_tag","format":' + '{"type":"plus","content":' * 2000, "JSON"),
    ],
)
def test_grammar_that_fails_ends_its_own_request_with_a_reason(
    model: LoraModel, grammar: str, words: str
) -> None:
    results = Results(model).run([request(regex("ab")), request(grammar), request(None, 5)])
    assert list(results.errors) == [1]
    problem = results.errors[1].problem
    assert words in problem.message
    assert "/project" not in problem.message
    assert len(problem.message) < 500
    assert results.text(0) == "ab"
    assert results.finishes[2]


def test_time_of_matching_an_ambiguous_grammar_is_limited(
    model: LoraModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_module, "MATCH_S", 0.02)
    monkeypatch.setattr(grammar_module, "MATCH_TOKEN_S", 0)
    matcher = model.grammars.matcher(model.grammars.compile(regex("((a|a)*)*b")))

    def match() -> None:
        for _ in range(1000):
            matcher.mask()
            assert matcher.accept(LETTER_A)

    with pytest.raises(PolicyError, match="too ambiguous"):
        match()


def test_slow_grammar_ends_its_own_request(
    model: LoraModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_module, "MATCH_S", 0)
    monkeypatch.setattr(grammar_module, "MATCH_TOKEN_S", 0)
    results = Results(model).run([request(None, 5), request(regex("ab"))])
    assert "too ambiguous" in str(results.errors[1])
    assert list(results.finishes) == [0]


def test_too_long_grammar_is_refused_at_once(model: LoraModel) -> None:
    with pytest.raises(PolicyError, match="65,536"):
        Results(model).sampler.add(0, request(regex("a" * MOST_GRAMMAR_CHARS)))


def test_compilation_has_a_timeout(model: LoraModel, monkeypatch: pytest.MonkeyPatch) -> None:
    results = Results(model)
    monkeypatch.setattr("engine.policy.torch.sampling.sampler.COMPILE_S", -1.0)
    with results.sampler._model.grammars._loading:
        results.run([request(regex("ab"))])
    assert "not compiled within" in str(results.errors[0])


def test_request_with_a_grammar_has_no_stop_tokens() -> None:
    with pytest.raises(ValueError, match="stop tokens"):
        request(regex("a"), stop_tokens=[3])


def test_cancelled_request_leaves_while_its_grammar_is_compiled(model: LoraModel) -> None:
    results = Results(model)
    results.sampler.add(0, request(regex("ab")))
    assert results.sampler.numbers == [0]
    results.sampler.cancel(0)
    assert not results.sampler.busy


def test_model_without_tokenizer_says_so(tiny_model: Path, tmp_path: Path) -> None:
    for file in tiny_model.iterdir():
        if "token" not in file.name:
            (tmp_path / file.name).symlink_to(file)
    results = Results(load(tmp_path)).run([request(regex("ab")), request(None)])
    assert "tokenizer" in results.errors[0].problem.message
    assert list(results.finishes) == [1]

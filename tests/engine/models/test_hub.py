"""Search of the hub and facts of its models, against a hub on loopback."""

import json
from pathlib import Path

import pytest

from engine.models.facts import known_facts, known_on_hub
from engine.models.file_checks import shape_counts
from engine.models.hub import read_card, search_hub, wanted_files
from engine.protocol.problems import ModelError
from tests.engine.models.conftest import NAME
from tests.support.model_hub import ModelHub


def test_search_reports_what_the_hub_knows_and_nothing_more(
    hub: ModelHub, tiny_model: Path
) -> None:
    hub.repos[NAME].config["tokenizer_config"] = {"chat_template": "{{ messages }}"}
    hub.add_folder("tiny/unknown", tiny_model).config = {}
    hub.add_folder("tiny/embedder", tiny_model, pipeline_tag="feature-extraction")
    found, unknown = search_hub("TINY")
    assert (found.id, found.licence, found.parameters) == (NAME, "apache-2.0", 91_000)
    assert (found.weight_bytes, found.chat, found.gated) == (4 * 91_000, True, False)
    assert (found.architecture, found.downloads, found.path) == ("LlamaForCausalLM", 1234, None)
    assert (unknown.parameters, unknown.weight_bytes, unknown.chat) == (None, None, None)


def test_card_has_the_same_counts_as_the_files(hub: ModelHub, tiny_model: Path) -> None:
    card = read_card(NAME)
    assert card.counts == shape_counts(tiny_model)
    assert card.problem is None
    facts = known_facts(known_on_hub(NAME, None))
    wanted = [one for one in tiny_model.iterdir() if one.name != "generation_config.json"]
    assert facts.context_tokens == 2048
    assert facts.tools is True
    assert facts.summary.chat is True
    assert facts.files[0].name == "model.safetensors"
    assert facts.download_bytes is not None
    assert facts.download_bytes >= sum(one.stat().st_size for one in wanted)
    assert not hub.ranges("model.safetensors")  # no weights, only headers


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"auto_map": {"AutoModel": "code.Model"}}, "model.remote_code"),
        ({"model_type": "t5"}, "model.not_causal"),
        ({"model_type": "bloom"}, "model.unusual_architecture"),
    ],
)
def test_unsupported_architecture_is_named_before_the_download(
    hub: ModelHub, change: dict[str, object], code: str
) -> None:
    files = hub.repos[NAME].files
    files["config.json"] = json.dumps(json.loads(files["config.json"]) | change).encode()
    problem = read_card(NAME).problem
    assert problem is not None
    assert problem.code == code


def test_quantised_weights_have_no_counts_and_a_reason(hub: ModelHub) -> None:
    files = hub.repos[NAME].files
    config = json.loads(files["config.json"]) | {"quantization_config": {"quant_method": "awq"}}
    files["config.json"] = json.dumps(config).encode()
    known = known_on_hub(NAME, None)
    assert known.counts is None
    assert "quantised (awq)" in known.counts_unknown


def test_model_without_chat_template_or_safetensors_has_a_problem(hub: ModelHub) -> None:
    files = hub.repos[NAME].files
    files["tokenizer_config.json"] = b"{}"
    problem = read_card(NAME).problem
    assert problem is not None
    assert problem.code == "model.no_chat_template"
    files["pytorch_model.bin"] = files.pop("model.safetensors")
    card = read_card(NAME)
    assert card.problem is not None
    assert "pytorch_model.bin" in card.problem.message
    assert card.counts is None


def test_each_failure_of_the_hub_is_one_sentence(
    hub: ModelHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repos[NAME].gated = True
    gated = read_card(NAME)
    assert gated.problem is not None
    assert gated.problem.code == "models.gated"
    assert (gated.summary.licence, gated.counts, gated.template) == ("apache-2.0", None, None)
    assert _code("tiny/missing") == "models.not_found"
    assert _code("a/b/c") == "models.bad_name"
    for status, code in ((403, "models.refused"), (429, "models.hub_failed")):
        hub.fails = status
        with pytest.raises(ModelError) as error:
            search_hub("tiny")
        assert error.value.problem.code == code
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert _code(NAME) == "models.hub_unreachable"


def test_second_copy_of_the_weights_and_subfolders_are_not_downloaded() -> None:
    sizes = {
        "consolidated.safetensors": 90,
        "model-00001-of-00002.safetensors": 50,
        "model-00002-of-00002.safetensors": 40,
        "onnx/model.onnx": 9,
        "original/config.json": 1,
        "config.json": 1,
        "pytorch_model.bin": 90,
    }
    names = [file.name for file in wanted_files(sizes)]
    assert names == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "config.json",
    ]


def _code(name: str) -> str:
    with pytest.raises(ModelError) as error:
        read_card(name)
    return error.value.problem.code

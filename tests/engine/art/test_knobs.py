"""What ART's train() can be told, and what becomes of it."""

from types import SimpleNamespace
from typing import Any

import pytest

from engine.art.figures import trained_figures
from engine.art.knobs import INSTEAD, Knobs, algorithm_of
from engine.art.settings import settings_of
from engine.protocol.algorithm import (
    Algorithm,
    Cispo,
    Clipped,
    GroupMean,
    Gspo,
    NoCorrection,
    TokenCap,
)
from engine.protocol.art_names import NAMES
from engine.protocol.problems import ConfigError


def asked(**knobs: Any) -> Algorithm:
    return algorithm_of(Knobs(**knobs))[0]


def test_its_defaults_are_our_preset() -> None:
    assert algorithm_of(Knobs()) == (Algorithm(preset="art"), [])
    assert Knobs().learning_rate == 5e-6


@pytest.mark.parametrize(
    ("knobs", "loss"),
    [
        ({"epsilon": 0.5}, Cispo(low=0.5, high=4.0)),
        ({"epsilon": 2.0, "epsilon_high": 3.0}, Cispo(low=1.0, high=3.0)),
        ({"loss_fn": "ppo"}, Clipped(low=0.2, high=0.2)),
        ({"loss_fn": "ppo", "epsilon": 0.1}, Clipped(low=0.1, high=0.1)),
        ({"loss_fn": "ppo", "epsilon_high": 0.28}, Clipped(low=0.2, high=0.28)),
        ({"loss_fn": "ppo", "epsilon_high": 0.0}, Clipped(low=0.2, high=0.0)),
        (
            {"loss_fn": "ppo", "importance_sampling_level": "sequence", "epsilon": 3e-4},
            Gspo(low=3e-4, high=3e-4),
        ),
    ],
)
def test_losses_have_its_bounds(knobs: dict[str, Any], loss: object) -> None:
    assert asked(**knobs).loss == loss


def test_scale_distance_and_correction() -> None:
    assert asked(scale_rewards=False).advantage == GroupMean()
    assert asked(normalize_advantages=False).advantage == GroupMean()
    near = asked(kl_penalty_coef=0.02)
    assert (near.kl, near.kl_in) == (0.02, "advantage")
    corrected = asked(precalculate_logprobs=True, truncated_importance_sampling=3.0)
    assert (corrected.ratio_to, corrected.correction) == ("trainer", TokenCap(cap=3.0))
    plain = asked(precalculate_logprobs=True)
    assert (plain.ratio_to, plain.correction) == ("trainer", NoCorrection())


@pytest.mark.parametrize("name", sorted(INSTEAD))
def test_what_would_change_the_update_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"train\({name}=.*has no counterpart here") as refused:
        algorithm_of(Knobs(**{name: "geometric_average"}))
    assert refused.value.problem.hint


def test_what_only_says_how_is_answered() -> None:
    told = algorithm_of(Knobs(packed_sequence_length=2048, plot_tensors=True))[1]
    assert ["plot_tensors" in told[0], "packed_sequence_length" in told[1]] == [True, True]
    idle = algorithm_of(Knobs(truncated_importance_sampling=2.0))[1]
    assert "no effect without precalculate_logprobs" in idle[0]
    with pytest.raises(ConfigError, match="loss_fn='dpo'"):
        algorithm_of(Knobs(loss_fn="dpo"))  # type: ignore[arg-type]


def test_of_its_model_config_what_we_have_and_the_rest_is_said() -> None:
    said = {
        "init_args": {"max_seq_length": 4096, "load_in_4bit": True},
        "peft_args": {"r": 16, "lora_alpha": 32},
        "chat_template": "x",
    }
    settings, told = settings_of(SimpleNamespace(_internal_config=said), {"server_args": {}})
    assert settings == {"model.max_context": 4096, "model.rank": 16, "model.alpha": 32}
    assert [sentence.partition(" has")[0] for sentence in told[:2]] == [
        "_internal_config['init_args']['load_in_4bit']",
        "_internal_config['chat_template']",
    ]
    assert told[2] == "The client's server_args have no effect here."


def test_figures_have_its_names_where_it_has_some() -> None:
    ours = {"loss": 0.5, "grad_norm": 1.0, "reward/mean": 0.25}
    assert trained_figures(ours, False, 1) == {
        "loss/train": 0.5,
        "loss/grad_norm": 1.0,
        "atelier/reward/mean": 0.25,
        "data/step_num_gradient_steps": 1.0,
    }
    assert trained_figures({}, True, 1) == {"data/step_num_gradient_steps": 0.0}


def test_a_backend_says_what_the_one_table_has_for_it() -> None:
    """And nothing of what ART measures itself, which would take its place."""
    ours = {name: 1.0 for row in NAMES for name in row.ours if "*" not in name}
    told = trained_figures(ours | {"unscored": 2.0}, False, 1)
    theirs = {name for name in told if not name.startswith("atelier/")}
    assert theirs == {
        *(row.art for row in NAMES if row.art.startswith("loss/")),
        "throughput/train_tok_per_sec",
        "data/step_trainer_tokens",
        "time/step_trainer_s",
        "data/step_num_gradient_steps",
    }
    assert told["loss/clipped_token_fraction"] == 2.0
    assert {"atelier/clip/low", "atelier/clip/high", "atelier/unscored"} <= set(told)
    assert {"atelier/loss", "atelier/tokens_per_s/train"}.isdisjoint(told)

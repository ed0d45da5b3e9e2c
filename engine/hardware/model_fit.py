"""Whether a base model fits the chosen compute: the forecast of a run, made before the download."""

from collections.abc import Sequence
from pathlib import Path

from engine.hardware.machine import Model, device_words, forecast, host_memory
from engine.hardware.memory_plan import vram_plan
from engine.hardware.vram import NF4_BITS
from engine.protocol.config.project import ProjectConfig
from engine.protocol.config.validation import changed_config
from engine.protocol.records.machine.hardware import Card, CardPlan, MemoryPart
from engine.protocol.requests.models import FitVerdict, ModelFit

FULL = {"backend.weights": "full"}
IN_4BIT = {"backend.weights": "4bit", "backend.trainer": "unsloth"}
ON_GPU = (
    "Peak of the larger phase, sampling or training, on the fullest GPU: weights, adapter and "
    "optimizer, activations, logits, KV cache, CUDA, allocator. Available: the GPU's memory "
    "minus memory used by other programs."
)
ON_CPU = (
    "Peak: weights, processes, the sampler's copies, KV cache, adapter and optimizer, "
    "activations. Available: the machine's memory."
)


def fit_of(
    model: Model | None,
    config: ProjectConfig,
    cards: Sequence[Card],
    host_bytes: int | None = None,
    device: str = "",
    parameters: int | None = None,
    unknown: str = "The shapes of the model's weights are unknown.",
) -> ModelFit:
    """Forecast whether `model` can be trained with `config` on these GPUs or, without any, on the
    CPU with `host_bytes` of memory (None: this machine's). `device` names them in the result
    (empty: by their own names). Without shapes (`model` None), `parameters` can only show that it
    is `too_large`; otherwise the fit is unknown, for the reason `unknown`."""
    known = [card for card in cards if card.total_bytes]
    if cards and not known:
        return ModelFit(unknown="The driver does not report the GPU's memory.", device=device)
    device = device or ", ".join(card.name for card in known) or device_words()
    if model is None:
        found = _without_shapes(known, host_bytes, device, parameters)
        return found or ModelFit(unknown=unknown, device=device)
    if not known:
        config = changed_config(config, {**FULL, "backend.trainer": "torch"})
        return _on_cpu(model, config, host_bytes, device)
    full, small = (_fullest(config, values, model, known) for values in (FULL, IN_4BIT))
    verdict: FitVerdict = "fits" if full.fits else "fits_4bit" if small.fits else "too_large"
    return ModelFit(
        verdict=verdict,
        device=device,
        peak_bytes=full.peak_bytes,
        peak_4bit_bytes=small.peak_bytes,
        room_bytes=full.room_bytes,
        parts=(full if full.fits else small).parts,
        formula=ON_GPU,
    )


def _fullest(
    config: ProjectConfig, values: dict[str, str], model: Model, cards: Sequence[Card]
) -> CardPlan:
    """Return the plan of the fullest of `cards`, which report their memory."""
    plan = vram_plan(changed_config(config, values), model, cards)
    assert plan is not None
    return plan.fullest


def _on_cpu(model: Model, config: ProjectConfig, host_bytes: int | None, device: str) -> ModelFit:
    made = forecast(config, model, [], Path.home())
    parts = {
        "model": (made.weights_bytes, made.weights_bytes),
        "sampler": (made.sampler_bytes, made.sampler_bytes),
        "adapter and optimizer": (made.adapter_bytes, made.adapter_bytes),
        "activations": (0, made.activations_bytes),
    }
    peak = sum(training for _, training in parts.values())
    room = made.available_bytes if host_bytes is None else host_bytes
    return ModelFit(
        verdict="fits" if peak <= room else "too_large",
        device=device,
        peak_bytes=peak,
        room_bytes=room,
        parts=tuple(
            MemoryPart(name=name, sampling_bytes=sampling, training_bytes=training)
            for name, (sampling, training) in parts.items()
        ),
        formula=ON_CPU,
    )


def _without_shapes(
    cards: Sequence[Card], host_bytes: int | None, device: str, parameters: int | None
) -> ModelFit | None:
    """Verdict `too_large` if even the weights alone, in the fewest bits, exceed the memory; else
    None, since the shapes are needed to decide."""
    if cards:
        room = max((card.total_bytes or 0) - (card.others_bytes or 0) for card in cards)
        least = None if parameters is None else int(parameters * NF4_BITS / 8)
    else:
        room = host_memory() if host_bytes is None else host_bytes
        least = None if parameters is None else parameters * 2
    if least is not None and least > room:
        return ModelFit(
            verdict="too_large",
            device=device,
            room_bytes=room,
            formula=f"The model's weights alone need {least / 1e9:,.1f} GB in "
            f"{'4 bits' if cards else '16 bits'}.",
        )
    return None

"""Model card and provenance of an export: origin, training, verification and usage. Pure text of
facts; no path, host or user name of this machine."""

import json
import time
from collections.abc import Sequence
from hashlib import sha256

from engine.export.source import Source
from engine.judge.prompting.rubric import parse_rubric
from engine.protocol.events.run import StepFinished, ValidationFinished
from engine.protocol.records.comparison import EvaluationResult
from engine.protocol.records.runs import Interval, RunSpec
from engine.protocol.requests.exports import ExportDtype, ExportFormat, ParityReport

CURVE_ROWS = 20
UNKNOWN = "unknown; look up the licence before you share this model"
METHODS = ("reinforcement learning", "supervised training")
USES: dict[ExportFormat, str] = {
    "adapter": """\
```python
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

model = AutoPeftModelForCausalLM.from_pretrained("PATH", dtype="{proven_in}")
tokenizer = AutoTokenizer.from_pretrained("PATH")
```

`vllm serve {base} --dtype {proven_in} --enable-lora --max-lora-rank {rank} \
--lora-modules {name}=PATH`
""",
    "merged": """\
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("PATH", dtype="{proven_in}")
tokenizer = AutoTokenizer.from_pretrained("PATH")
```

`vllm serve PATH --served-model-name {name} --dtype {proven_in}`, or
`ollama create {name} -f Modelfile`
""",
    "gguf": """\
`llama-server -m model.gguf --jinja`, or `ollama create {name} -f Modelfile`
""",
}
IMAGE_USES: dict[ExportFormat, str] = {
    "adapter": """\
```python
from peft import PeftModel
from transformers import AutoModelForImageTextToText, AutoProcessor

base = AutoModelForImageTextToText.from_pretrained("{base}", dtype="{proven_in}")
model = PeftModel.from_pretrained(base, "PATH")
processor = AutoProcessor.from_pretrained("{base}")
```

`vllm serve {base} --dtype {proven_in} --enable-lora --max-lora-rank {rank} \
--lora-modules {name}=PATH`
""",
    "merged": """\
```python
from transformers import AutoModelForImageTextToText, AutoProcessor

model = AutoModelForImageTextToText.from_pretrained("PATH", dtype="{proven_in}")
processor = AutoProcessor.from_pretrained("PATH")
```

`vllm serve PATH --served-model-name {name} --dtype {proven_in}`
""",
}
"""For models that read images, which are not exported as GGUF."""


def served_name(spec: RunSpec) -> str:
    """Name under which servers offer the exported model: lower case, no spaces."""
    words = f"{spec.project}-{spec.name}".lower()
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in words).strip("-.")


def provenance(source: Source, kind: ExportFormat, dtype: ExportDtype, proven_in: str) -> str:
    """Return the text of `atelier.json`: origin and settings, for programs. `proven_in` is the
    precision of the parity check."""
    spec, base = source.spec, source.base
    facts = {
        "schema": 1,
        "format": kind,
        "dtype": dtype,
        "proven_in": proven_in,
        "run": {"id": spec.id, "name": spec.name, "project": spec.project},
        "step": source.checkpoint.step,
        "adapter_sha256": source.adapter_sha256,
        "base": {"name": base.name, "licence": base.licence or None, "note": base.note},
        "rank": spec.config.model.rank,
        "alpha": spec.config.model.alpha,
        "adapt_experts": spec.config.model.adapt_experts,
        "seed": spec.config.train.seed,
        "rubric_sha256": sha256(source.rubric.encode()).hexdigest() if source.rubric else None,
        "versions": spec.versions,
        "max_context": spec.config.model.max_context,
    }
    return json.dumps(facts, indent=1, ensure_ascii=False) + "\n"


def model_card(source: Source, parity: ParityReport) -> str:
    spec, base = source.spec, source.base
    uses = IMAGE_USES if source.reads_images else USES
    use = uses[parity.format].format(
        base=base.name,
        name=served_name(spec),
        rank=spec.config.model.rank,
        proven_in=parity.computed_in,
    )
    if parity.format == "adapter" and spec.config.model.adapt_experts:
        use = use.partition("`vllm serve")[0]  # which expects other names of an expert's factors
    sections = [
        _front_matter(source),
        f"# {spec.project}: {spec.name}, step {source.checkpoint.step}",
        f"{base.name}, trained by {METHODS[spec.kind == 'sft']} with Atelier on the agent "
        f"*{spec.project}*. {spec.config.description}".rstrip(),
        _base(source),
        *(_supervised(source) if spec.supervised else _reinforced(source)),
        _validation(source.validations),
        _evaluation(source.evaluation),
        _parity(parity),
        f"## Use\n\nPATH is this folder. It was verified in {parity.computed_in}; in lower "
        f"precision, some outputs differ.\n\n{use}",
        _versions(spec.versions),
    ]
    return "\n\n".join(section.strip() for section in sections if section) + "\n"


def _task(source: Source) -> str:
    return "image-text-to-text" if source.reads_images else "text-generation"


def _front_matter(source: Source) -> str:
    base = source.base
    lines = ["---", "library_name: transformers", f"pipeline_tag: {_task(source)}"]
    if base.is_hub_id:
        lines.append(f"base_model: {base.name}")
    if base.licence and " " not in base.licence:
        lines.append(f"license: {base.licence.lower()}")
    how = "sft" if source.spec.kind == "sft" else "reinforcement-learning, grpo"
    return "\n".join([*lines, f"tags: [atelier, {how}, lora]", "---"])


def _base(source: Source) -> str:
    base = source.base
    note = f"\n\n{base.note}" if base.note else ""
    return f"## Base model\n\n{base.name}. Its licence: {base.licence or UNKNOWN}.{note}"


def _reinforced(source: Source) -> tuple[str, ...]:
    return _training(source), _judging(source), _curve(source.steps)


def _supervised(source: Source) -> tuple[str, ...]:
    """Section on the demonstrations of an SFT run, which has no reward."""
    spec, sft, plan = source.spec, source.spec.config.sft, source.spec.supervised
    assert plan is not None
    files = ", ".join(f"`{_file(name)}`" for name in plan.files)
    left = f"; {plan.skipped} invalid lines left out" if plan.skipped else ""
    rows = [
        ("data", f"{plan.train.examples} demonstrations from {files}{left}"),
        ("trained tokens", f"{plan.train.trained:,} per epoch"),
        *_run_rows(source, spec.updates),
        ("batch size", f"{sft.batch_size} demonstrations, {sft.epochs} epochs"),
        ("learning rate", f"{sft.lr:g}, {sft.schedule}"),
        *_adapter_rows(source),
    ]
    if (loss := source.checkpoint.metrics.get("validation/loss")) is not None:
        rows.append(("loss on held-out demonstrations", f"{loss:.4f} nats per token"))
    return (f"## Training\n\n{_table(('what', 'value'), rows)}",)


def _run_rows(source: Source, steps: int) -> list[tuple[str, str]]:
    spec = source.spec
    day = time.strftime("%Y-%m-%d", time.gmtime(spec.started_at))
    rows = [
        ("run", f"`{spec.id}`, started on {day}"),
        ("checkpoint", f"step {source.checkpoint.step} of {steps}"),
    ]
    if parent := spec.parent:
        rows.insert(1, ("started from", f"the weights of `{_file(parent.name)}@{parent.step}`"))
    return rows


def _adapter_rows(source: Source) -> list[tuple[str, str]]:
    model = source.spec.config.model
    where = ", on attention layers and routed experts" if model.adapt_experts else ""
    return [
        ("adapter", f"LoRA, rank {model.rank}, α {model.alpha:g}{where}"),
        ("seed", str(source.spec.config.train.seed)),
        ("sha256 of the adapter", f"`{source.adapter_sha256}`"),
    ]


def _training(source: Source) -> str:
    spec, train = source.spec, source.spec.config.train
    scenarios = spec.config.scenarios
    data = f"the scenarios of `{_file(scenarios.train)}`"
    if scenarios.validation:
        data += f", validated on `{_file(scenarios.validation)}`"
    rows = [
        ("data", f"{data}; {source.trajectories} rollouts in total"),
        *_run_rows(source, train.steps),
        ("a step", f"{train.groups} scenarios × {train.group_size} rollouts"),
        ("learning rate", f"{train.lr:g}"),
        *_adapter_rows(source),
    ]
    if train.warmup:
        rows.append(("warm-up", f"{train.warmup.epochs} epochs on `{_file(train.warmup.file)}`"))
    return f"## Training\n\n{_table(('what', 'value'), rows)}"


def _judging(source: Source) -> str:
    config = source.spec.config
    weights = config.reward.weights
    words = (
        "Reward parts and their weights: "
        + ", ".join(f"`{name}` {weight:g}" for name, weight in sorted(weights.items()))
        if weights
        else "Every reward part has weight 1"
    )
    text = f"## Reward\n\n{words}."
    if config.judge.enabled:
        judges = ", ".join(f"`{_file(model)}`" for model in config.judge.models)
        local = "a local judge" if config.judge.local else ""
        text += f" Judged by {' and '.join(filter(None, (judges, local)))}."
    if source.rubric:
        rubric = parse_rubric(source.rubric)
        quoted = "\n".join(f"> {line}".rstrip() for line in rubric.source.strip().splitlines())
        digest = sha256(source.rubric.encode()).hexdigest()
        text += f"\n\nThe rubric (version {rubric.version}, sha256 `{digest}`):\n\n{quoted}"
    return text


def _curve(steps: Sequence[StepFinished]) -> str:
    """Table of the mean reward by step, thinned out for long runs."""
    if not steps:
        return ""
    every = max(1, -(-len(steps) // CURVE_ROWS))
    shown = [event for n, event in enumerate(steps) if n % every == 0 or event is steps[-1]]
    rows = [
        (str(event.step), _number(event.metrics.get("reward/mean")), "skipped" * event.skipped)
        for event in shown
    ]
    return f"## Training curve\n\n{_table(('step', 'mean reward', ''), rows)}"


def _validation(validations: Sequence[ValidationFinished]) -> str:
    ordered = sorted(validations, key=lambda event: event.step)
    known = [event for event in ordered if event.reward]
    if not known:
        return "## Validation\n\nNo validation was run."
    ends = known if len(known) == 1 else [known[0], known[-1]]
    rows = [(str(event.step), _interval(event.reward)) for event in ends]
    head = ("after step", "mean reward, 95 % interval")
    return f"## Validation\n\n{_table(head, rows)}"


def _evaluation(result: EvaluationResult | None) -> str:
    if result is None:
        return ""
    rows = [
        (
            _file(one.name),
            _interval(one.reward),
            _interval(one.versus.difference) if one.versus else "",
            one.versus.word if one.versus else "",
        )
        for one in result.standings
    ]
    head = ("model", "mean reward, 95 %", "paired difference to the first model, 95 %", "")
    judged = ", reward including judge scores" if result.judged else ""
    words = f"{result.scenarios} scenarios × {result.attempts} rollouts{judged}."
    return f"## Evaluation\n\n{words}\n\n{_table(head, rows)}"


def _parity(parity: ParityReport) -> str:
    text = f"## Parity\n\nCompared with base model plus unmerged adapter: **{parity.verdict}**."
    if parity.forced:
        text += " The export was kept although it differs."
    for failure in parity.failures:
        text += f"\n- {failure}"
    rows = []
    if gap := parity.logprobs:
        rows += [
            ("tokens compared", str(gap.tokens)),
            ("mean |Δ log-prob|", f"{gap.mean:.3g} nats"),
            ("99th percentile", f"{gap.p99:.3g} nats"),
            ("largest", f"{gap.largest:.3g} nats"),
        ]
    if match := parity.greedy:
        rows.append(("same greedy text", f"{match.same} of {match.prompts} ({match.ties} ties)"))
    if weights := parity.weights:
        rows.append(("weights that differ", f"{weights.outside} of {weights.numbers}"))
    table = _table(("measured", parity.dtype), rows) if rows else ""
    return f"{text}\n\n{table}\n\n`parity.json` has the details, `MANIFEST.json` the file hashes."


def _versions(versions: dict[str, str]) -> str:
    rows = sorted(versions.items())
    return f"## Versions\n\n{_table(('what', 'version'), rows)}" if rows else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _file(name: str) -> str:
    """Publishable part of a file path."""
    return name.replace("\\", "/").rpartition("/")[2] if name.startswith(("/", "~")) else name


def _interval(value: Interval | None) -> str:
    return f"{value.mean:.3f} [{value.low:.3f}, {value.high:.3f}]" if value else "–"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"

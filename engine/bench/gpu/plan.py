"""Plan of the GPU report: checks in the order in which they run, and what each needs. Pure."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from engine.bench.gpu.report import Section
from engine.bench.gpu.survey import Survey

HERE = "engine.bench.gpu"
BESIDE = {"vllm": "vllm-cpu", "unsloth": "unsloth-cpu", "trl": "bench", "litellm": "judge"}
"""Environments with packages that the engine lacks, by package."""
ON_CARDS_TOO = ("trl", "litellm")
"""Environments that are also useful beside an engine that computes on a GPU."""
COMPILING = ("vllm", "unsloth")
"""Packages whose kernels are compiled on a card while they run."""
BACKENDS = (
    ("torch", "torch", "full"),
    ("torch", "vllm", "full"),
    ("unsloth", "torch", "full"),
    ("unsloth", "vllm", "full"),
    ("unsloth", "torch", "4bit"),
    ("unsloth", "vllm", "4bit"),
)
"""Combinations of trainer, sampler and precision of the frozen weights."""
SAMPLES = {"hello": "hello", "2048": "game_2048"}


class Check(NamedTuple):
    """Check of the GPU report."""

    name: str
    title: str
    section: Section
    function: str
    arguments: Mapping[str, Any] = MappingProxyType({})
    packages: tuple[str, ...] = ("torch", "transformers", "peft")
    card: bool = False
    """Whether the check is meaningless without a GPU."""
    cards: int = 1


def checks() -> list[Check]:
    """All checks, including those that this machine cannot run."""
    return [
        Check("machine", "Speed of the machine", "machine", f"{HERE}.machine:run"),
        Check("attention", "Attention over prefix trees", "exactness", f"{HERE}.attention:run"),
        Check("gradients", "Gradients of prefix trees", "exactness", f"{HERE}.gradients:run"),
        Check("logprobs", "Log-probs: sampler vs. trainer", "exactness", f"{HERE}.twins:logprobs"),
        Check("determinism", "Repeatability of updates", "exactness", f"{HERE}.twins:determinism"),
        *(_run(name, *backend) for backend in BACKENDS for name in SAMPLES),
        _judged(),
        _trl("replay"),
        _trl("live"),
        Check("cards", "Data-parallel training on two GPUs", "cards", f"{HERE}.ranks:run", cards=2),
    ]


def _run(name: str, trainer: str, sampler: str, weights: str) -> Check:
    bits = "" if weights == "full" else f"-{weights}"
    needed = [word for word in (trainer, sampler) if word != "torch"]
    needed += ["bitsandbytes"] if bits else []
    return Check(
        f"{name}-{trainer}-{sampler}{bits}",
        f"{name}: trainer {trainer}{f' ({weights})' if bits else ''}, sampler {sampler}",
        "runs",
        f"{HERE}.runs:run",
        {"sample": SAMPLES[name], "trainer": trainer, "sampler": sampler, "weights": weights},
        ("torch", "transformers", "peft", "openai", *needed),
        card=bool(bits),
    )


def _judged() -> Check:
    backend = {"sample": "hello", "trainer": "torch", "sampler": "torch", "weights": "full"}
    needed = ("torch", "transformers", "peft", "openai", "litellm")
    arguments = {**backend, "judged": True}
    return Check("judge", "hello with an LLM judge", "runs", f"{HERE}.runs:run", arguments, needed)


def _trl(mode: str) -> Check:
    title = "Update, compared with TRL" if mode == "replay" else "Whole step, compared with TRL"
    needed = ("torch", "transformers", "peft", "trl")
    return Check(f"trl-{mode}", title, "trl", f"{HERE}.contest:run", {"mode": mode}, needed)


def chosen(every: Sequence[Check], only: Sequence[str]) -> list[Check]:
    """Checks whose name is in `only`, or begins with an entry of it and a hyphen (`trl` selects
    `trl-live`); all if `only` is empty. Raises ValueError, with one sentence, for an entry that
    selects none."""
    for name in only:
        if not any(_named(check, name) for check in every):
            names = ", ".join(check.name for check in every)
            raise ValueError(f"{name!r} is not a check: use one of {names}, or a prefix of one")
    return [c for c in every if not only or any(_named(c, name) for name in only)]


def lacks(check: Check, found: Survey, on_processor: bool) -> str:
    """Reason why a check cannot run in the surveyed environment, in one sentence; empty if it can.
    `on_processor`: the checks run without a GPU."""
    missing = [name for name in check.packages if not has(name, found, on_processor)]
    if missing:
        return f"{_list(missing)} must be installed for {found.executable}."
    if on_processor:
        return "This check needs an NVIDIA GPU." if check.card else ""
    if len(found.cards) < check.cards:
        return f"This check needs {check.cards} GPUs; CUDA shows {len(found.cards)}."
    compiled = [name for name in check.packages if name in COMPILING]
    if compiled and not found.compiler:
        return f"{_list(compiled)} compiles kernels, but there is no C compiler: install gcc."
    if compiled and not found.headers:
        return (
            f"{_list(compiled)} compiles kernels, but Python's header files are missing: install "
            f"python{found.python.rpartition('.')[0]}-dev."
        )
    return ""


def has(package: str, found: Survey, on_processor: bool) -> bool:
    """Whether a package is installed in the surveyed engine or in a separate environment for it.
    `on_processor`: the checks run on the CPU; on GPUs only some of these environments count."""
    beside = BESIDE.get(package) in found.environments
    serves = on_processor or package in ON_CARDS_TOO
    return package in found.packages or (beside and serves)


def _named(check: Check, name: str) -> bool:
    return check.name == name or check.name.startswith(f"{name}-")


def _list(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))

"""Bytes on one card while a run samples and while it trains: named parts, from shapes and counts.
Pure.

The two phases take turns, so a card must hold the larger one and not their sum; where the next
attempts are sampled while the trainer works, it must hold both. A part that stays is in both.

What a token keeps for the backward pass is a matter of how a trainer is written: a `Recipe`. Ours
is `recipe_of`; recipes of other programs in the test bring their published peaks within 15 %.
"""

from typing import Literal, NamedTuple

from engine.hardware.flops import ModelShape
from engine.hardware.forecast import KEPT, MOST_PREFILLED, copy_bytes

Storage = Literal["full", "8bit", "4bit"]
Sampler = Literal["torch", "vllm"]
Sleep = Literal["off", "cache", "all"]

NF4_BITS = 4.127
"""Bits of a weight in bitsandbytes' NF4: 4, and 0.127 of constants that are quantised themselves
(QLoRA, 2305.14314, section 3)."""
ROW_SCALE_BYTES = 4
"""LLM.int8 (2208.07339) keeps one float32 scale for each row of a matrix."""
ADAPTER_BYTES = 16
"""Bytes per adapter parameter: float32 weight, gradient and AdamW's two moments."""
GRADIENTS = (4, 3)
"""Hidden and intermediate vectors whose gradients live at once in the backward of one layer:
residual, normed, query and attended; gate, up and their product."""
FORWARD = (4, 3)
"""The same of a forward pass that keeps nothing."""
SCORED_BYTES = 12
"""Bytes per trained token and hidden dimension in the head, in float32: its slope, the gradient of
the whole vocabulary, and the weights of its target."""
HEAD_ROWS, HEAD_BLOCK, HEAD_LOGIT_BYTES = 1024, 2048, 8
"""Our head: logits at once, and the bytes of one beside that in the weights' precision."""
CONTEXT_BYTES = 500_000_000
"""The driver's own for a process that computes: 300 to 400 MB with kernels loaded lazily (CUDA
11.7 on; pytorch issues 107667 and 109888), and the workspaces of cuBLAS."""
NCCL_BYTES = 300_000_000
"""Channels of one process that exchanges gradients with others."""
SLACK = 0.05
"""Share for fragmentation of PyTorch's caching allocator, of what is allocated anew in each step
(vLLM tests its own profile to within 5 % for the same reason, pull request 12126)."""
VLLM_TOKENS, VLLM_ROWS, VLLM_LOGIT_BYTES = 8192, 256, 10
"""vLLM profiles itself with this many tokens and rows; of a logit in the weights' precision, in
float32, and as chance. Llama-3-8B so takes 1.26 GiB (pull request 10511)."""
VLLM_GRAPHS_BYTES = 600_000_000
"""CUDA graphs of its decode steps: 0.13 to 0.5 GiB are told for models of 1 to 8 billion (pull
requests 11349 and 22897). They and the context stay when it sleeps: 0.8 to 1.1 GB are told
(NeMo-RL issue 223, vLLM issue 32714)."""
TORCH_CACHE_SHARE = 0.3
"""Share of the memory that is free after loading the trainer, for the sampler's key-value cache."""


class Recipe(NamedTuple):
    """Memory-relevant properties of a trainer's implementation."""

    hidden_bytes: float
    """Kept for the backward pass by a token in each layer, for each number of its hidden vector."""
    wide_bytes: float
    """The same for its intermediate vector."""
    logit_bytes: float
    """Alive at once for each logit of the batch where the head is not computed in chunks; 0 is our
    head."""
    checkpointing: bool = False
    """Whether only the hidden vector of each layer is kept, and the rest computed again."""
    adapter_bytes: float = ADAPTER_BYTES
    """Bytes per adapter parameter."""
    dequantised: bool = False
    """Whether a matrix is unpacked into 16 bits for its products."""


class Part(NamedTuple):
    """Bytes under one name, in each phase."""

    name: str
    sampling: int
    training: int


class Job(NamedTuple):
    """Work of a run on one GPU."""

    tokens: int
    """Tokens of the largest micro-batch."""
    context: int
    """Tokens of the longest sequence."""
    rows: int
    """Attempts that are sampled at once; 0 where this card samples nothing."""
    storage: Storage = "full"
    sampler: Sampler = "torch"
    sleep: Sleep = "off"
    overlaps: bool = False
    """Whether the next attempts are sampled while the trainer works."""
    peers: int = 0
    """Other processes that train the same batch."""
    share_bytes: int | None = None
    """Bytes that vLLM is set to use, if the setting is given."""
    trains: bool = True
    """False on a card that is left to vLLM alone."""


class Plan(NamedTuple):
    """Parts of one card, in the order of a bar."""

    parts: tuple[Part, ...]
    overlaps: bool

    @property
    def sampling(self) -> int:
        return self.together if self.overlaps else sum(part.sampling for part in self.parts)

    @property
    def training(self) -> int:
        return self.together if self.overlaps else sum(part.training for part in self.parts)

    @property
    def together(self) -> int:
        """Bytes of both phases at once; what stays in memory counts once."""
        return sum(max(part.sampling, part.training) for part in self.parts)

    @property
    def peak(self) -> int:
        return max(self.sampling, self.training)

    def bytes_of(self, *names: str) -> int:
        """Bytes of the parts with these names: of each, the larger of sampling and training. Names
        without a part count 0."""
        return sum(max(p.sampling, p.training) for p in self.parts if p.name in names)


MODEL, ADAPTER, ACTIVATIONS, LOGITS = "model", "adapter and optimizer", "activations", "logits"
COPIES, CACHE, PREFILL = "sampler's copies", "keys and values", "prompts"
SERVED, SERVER, GRAPHS = "vLLM's model", "vLLM's activations", "vLLM's graphs"
PROGRAMS, HOLES = "CUDA", "allocator"
OF_VLLM = (SERVED, CACHE, SERVER, GRAPHS)


def recipe_of(shape: ModelShape, storage: Storage, checkpointing: bool) -> Recipe:
    """Recipe of our trainer: activations as `forecast` counts them, the head in chunks on trained
    tokens only, and the adapter once more in the precision of the weights."""
    hidden, wide = KEPT[shape.width_bytes]
    cast = shape.width_bytes if shape.width_bytes < 4 else 0
    return Recipe(
        hidden_bytes=hidden * shape.width_bytes,
        wide_bytes=wide * shape.width_bytes,
        logit_bytes=0,
        checkpointing=checkpointing,
        adapter_bytes=ADAPTER_BYTES + cast,
        dequantised=storage != "full",
    )


def weight_bytes(shape: ModelShape, rest: int, storage: Storage) -> int:
    """Bytes of a loaded model. Linear layers between embedding and head are quantised; `rest`
    (embeddings, head and norms) is not."""
    whole = rest * shape.width_bytes
    if storage == "4bit":
        return int(whole + shape.body * NF4_BITS / 8)
    if storage == "8bit":
        return int(whole + shape.body * (1 + ROW_SCALE_BYTES / shape.hidden))
    return whole + shape.body * shape.width_bytes


def activation_bytes(shape: ModelShape, tokens: int, recipe: Recipe) -> int:
    """Kept from forward to backward of one micro-batch."""
    if recipe.checkpointing:
        return tokens * shape.layers * shape.hidden * shape.width_bytes
    return int(tokens * shape.layers * _layer_bytes(shape, recipe))


def working_bytes(shape: ModelShape, tokens: int, recipe: Recipe) -> int:
    """Beside them at the worst moment: the loss, or one layer's way back. These take turns."""
    layer: float = tokens * shape.width_bytes * _vectors(shape, GRADIENTS)
    if recipe.checkpointing:
        layer += tokens * _layer_bytes(shape, recipe)
    if recipe.dequantised:
        layer += 2 * shape.hidden * shape.intermediate
    return int(max(layer, head_bytes(shape, tokens, recipe)))


def head_bytes(shape: ModelShape, tokens: int, recipe: Recipe) -> float:
    """Logits, their loss and its gradient."""
    if recipe.logit_bytes:
        return tokens * shape.vocabulary * recipe.logit_bytes
    block = min(tokens, HEAD_ROWS) * min(HEAD_BLOCK, shape.vocabulary)
    return tokens * shape.hidden * SCORED_BYTES + block * (HEAD_LOGIT_BYTES + shape.width_bytes)


def training_bytes(
    shape: ModelShape, rest: int, tokens: int, storage: Storage, recipe: Recipe
) -> int:
    """Peak of a trainer alone, as PyTorch counts it: without the driver's own."""
    return (
        weight_bytes(shape, rest, storage)
        + int(recipe.adapter_bytes * shape.adapter)
        + activation_bytes(shape, tokens, recipe)
        + working_bytes(shape, tokens, recipe)
    )


def server_bytes(shape: ModelShape) -> int:
    """vLLM's activations as it measures them before it divides the rest into keys and values."""
    tokens = VLLM_TOKENS * shape.width_bytes * _vectors(shape, FORWARD)
    return int(tokens + VLLM_ROWS * shape.vocabulary * VLLM_LOGIT_BYTES)


def cache_bytes(shape: ModelShape, rows: int, context: int) -> int:
    """Keys and values of `rows` sequences that have grown to `context` tokens."""
    return rows * context * shape.cached_token_bytes


def plan(shape: ModelShape, rest: int, job: Job, recipe: Recipe, room: int) -> Plan:
    """Memory plan of one GPU with `room` bytes for this run. The sampler's key-value cache takes
    what is left, between one rollout and all of them. A trainer is expected to release PyTorch's
    cached blocks before the other phase begins."""
    weights = weight_bytes(shape, rest, job.storage)
    adapter = int(recipe.adapter_bytes * shape.adapter)
    kept = activation_bytes(shape, job.tokens, recipe)
    working = working_bytes(shape, job.tokens, recipe)
    served = bool(job.rows) and job.sampler == "vllm"
    if not job.trains:
        parts = [Part(PROGRAMS, CONTEXT_BYTES, CONTEXT_BYTES)]
        return Plan(tuple(_served(shape, job, weights, Plan(tuple(parts), False), room)), False)
    programs = CONTEXT_BYTES * (1 + served) + (NCCL_BYTES if job.peers else 0)
    parts = [
        Part(MODEL, weights, weights),
        Part(ADAPTER, adapter, adapter),
        Part(ACTIVATIONS, 0, kept),
        Part(LOGITS, 0, working),
        Part(PROGRAMS, programs, programs),
        Part(HOLES, 0, int(SLACK * (kept + working))),
    ]
    if job.rows:
        own = _served if served else _sampled
        parts = own(shape, job, weights, Plan(tuple(parts), job.overlaps), room)
    return Plan(tuple(part for part in parts if part.sampling or part.training), job.overlaps)


def _sampled(shape: ModelShape, job: Job, weights: int, before: Plan, room: int) -> list[Part]:
    """Our sampler in the trainer's process: what it has stays while the trainer works."""
    free = max(0, room - before.sampling)
    copies = copy_bytes(shape, free) if job.storage == "full" else 0
    prompts = min(MOST_PREFILLED, job.rows * job.context) * _vectors(shape, FORWARD)
    parts = [*before.parts, Part(COPIES, copies, copies)]
    parts.append(Part(PREFILL, int(prompts * shape.width_bytes), 0))
    most = min(int(TORCH_CACHE_SHARE * free), room - Plan(tuple(parts), job.overlaps).peak)
    cache = _cache(shape, job, most)
    return [*parts, Part(CACHE, cache, cache)]


def _served(shape: ModelShape, job: Job, weights: int, before: Plan, room: int) -> list[Part]:
    """vLLM beside the trainer: its own weights, and what is left of it while it sleeps."""
    asleep = "off" if job.overlaps else job.sleep
    stays = asleep != "all"
    server = server_bytes(shape)
    parts = [
        *before.parts,
        Part(SERVED, weights, weights * stays),
        Part(SERVER, server, server * stays),
        Part(GRAPHS, VLLM_GRAPHS_BYTES, VLLM_GRAPHS_BYTES),
    ]
    plan = Plan(tuple(parts), job.overlaps)
    if job.share_bytes is None:
        most = room - (plan.peak if asleep == "off" else plan.sampling)
    else:
        most = job.share_bytes - plan.bytes_of(*OF_VLLM)
    cache = _cache(shape, job, most)
    return [*parts, Part(CACHE, cache, cache if asleep == "off" else 0)]


def _cache(shape: ModelShape, job: Job, most: int) -> int:
    if job.share_bytes is not None:
        return max(0, most)
    least, wanted = (cache_bytes(shape, rows, job.context) for rows in (1, job.rows))
    return max(least, min(wanted, most))


def _layer_bytes(shape: ModelShape, recipe: Recipe) -> float:
    wide = recipe.wide_bytes * shape.intermediate
    return recipe.hidden_bytes * _breadth(shape) + wide


def _vectors(shape: ModelShape, counts: tuple[int, int]) -> int:
    return counts[0] * _breadth(shape) + counts[1] * shape.intermediate


def _breadth(shape: ModelShape) -> int:
    """Width of the hidden vector, or of all its queries if that is larger."""
    return max(shape.hidden, shape.query_heads * shape.head_size)

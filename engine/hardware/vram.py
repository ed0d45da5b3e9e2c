"""GPU memory in bytes while a run samples and while it trains: named parts, from shapes and counts.
Pure.

The two phases alternate, so a GPU must hold the larger one and not their sum. If the next rollouts
are sampled while the policy trains, it must hold both. A part that stays in memory is in both.

Activation memory per token depends on the implementation of a trainer, a `Recipe`. Atelier's is
`recipe_of`; recipes of other programs in the test reproduce their published peaks within 15 %.
"""

from typing import Literal, NamedTuple

from engine.hardware.flops import ModelShape
from engine.hardware.forecast import KEPT, MOST_PREFILLED, copy_bytes

Storage = Literal["full", "8bit", "4bit"]
Sampler = Literal["torch", "vllm"]
Sleep = Literal["off", "cache", "all"]

NF4_BITS = 4.127
"""Bits per weight in bitsandbytes' NF4: 4, and 0.127 for constants that are quantised themselves
(QLoRA, 2305.14314, section 3)."""
ROW_SCALE_BYTES = 4
"""Bytes per matrix row for the float32 scale of LLM.int8 (2208.07339)."""
ADAPTER_BYTES = 16
"""Bytes per adapter parameter: float32 weight, gradient and AdamW's two moments."""
GRADIENTS = (4, 3)
"""Number of hidden and intermediate vectors with live gradients in the backward of one layer:
residual, normed, query and attended; gate, up and their product."""
FORWARD = (4, 3)
"""Number of live vectors in a forward pass that keeps nothing."""
SCORED_BYTES = 12
"""Bytes per trained token and hidden dimension in the head, in float32: gradient of the hidden
state, gradient over the whole vocabulary, and the weights of its target."""
HEAD_ROWS, HEAD_BLOCK, HEAD_LOGIT_BYTES = 1024, 2048, 8
"""Chunk of logits in Atelier's head, and bytes per logit beside those in weight precision."""
CONTEXT_BYTES = 500_000_000
"""CUDA context of a process: 300 to 400 MB with lazily loaded kernels (CUDA 11.7 on; pytorch issues
107667 and 109888), and the workspaces of cuBLAS."""
NCCL_BYTES = 300_000_000
"""NCCL channels of a process that exchanges gradients."""
SLACK = 0.05
"""Share for fragmentation of PyTorch's caching allocator, of memory allocated anew in each step
(vLLM tests its own profile to within 5 % for the same reason, pull request 12126)."""
VLLM_TOKENS, VLLM_ROWS, VLLM_LOGIT_BYTES = 8192, 256, 10
"""Tokens and rows with which vLLM profiles itself, and bytes per logit (in weight precision, in
float32, and as probability). For Llama-3-8B this gives 1.26 GiB (pull request 10511)."""
VLLM_GRAPHS_BYTES = 600_000_000
"""CUDA graphs of vLLM's decode steps: reported as 0.13 to 0.5 GiB for models of 1 to 8 billion
parameters (pull requests 11349 and 22897). Graphs and context stay in memory during sleep: 0.8 to
1.1 GB are reported (NeMo-RL issue 223, vLLM issue 32714)."""
TORCH_CACHE_SHARE = 0.3
"""Maximum share of the memory left beside the trainer for the sampler's KV cache."""


class Recipe(NamedTuple):
    """Memory-relevant properties of a trainer's implementation."""

    hidden_bytes: float
    """Bytes kept for the backward pass per token, layer and hidden dimension."""
    wide_bytes: float
    """Bytes kept per token, layer and intermediate dimension."""
    logit_bytes: float
    """Live bytes per logit of the batch if the head is not computed in chunks; 0 for Atelier's
    head."""
    checkpointing: bool = False
    """Whether only the hidden state of each layer is kept, and the rest recomputed."""
    adapter_bytes: float = ADAPTER_BYTES
    """Bytes per adapter parameter."""
    dequantised: bool = False
    """Whether matrices are dequantised to 16 bits for their products."""


class Part(NamedTuple):
    """Memory of one named part in each phase, in bytes."""

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
    """Number of concurrent rollouts; 0 if this GPU does not sample."""
    storage: Storage = "full"
    sampler: Sampler = "torch"
    sleep: Sleep = "off"
    overlaps: bool = False
    """Whether the next rollouts are sampled while the policy trains."""
    peers: int = 0
    """Number of other processes that train the same batch."""
    share_bytes: int | None = None
    """Bytes that vLLM may use by `backend.memory_share`; None without the setting."""
    trains: bool = True
    """False for a GPU that only runs vLLM."""


class Plan(NamedTuple):
    """Parts of one GPU, in display order."""

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
        """Peak bytes if sampling and training overlap; a part that both need counts once."""
        return sum(max(part.sampling, part.training) for part in self.parts)

    @property
    def peak(self) -> int:
        return max(self.sampling, self.training)

    def bytes_of(self, *names: str) -> int:
        """Sum of the named parts in bytes, each at the larger of sampling and training. Missing
        parts count 0."""
        return sum(max(p.sampling, p.training) for p in self.parts if p.name in names)


MODEL, ADAPTER, ACTIVATIONS, LOGITS = "model", "adapter and optimizer", "activations", "logits"
COPIES, CACHE, PREFILL = "sampler's copies", "keys and values", "prompts"
SERVED, SERVER, GRAPHS = "vLLM's model", "vLLM's activations", "vLLM's graphs"
PROGRAMS, HOLES = "CUDA", "allocator"
OF_VLLM = (SERVED, CACHE, SERVER, GRAPHS)


def recipe_of(shape: ModelShape, storage: Storage, checkpointing: bool) -> Recipe:
    """Memory use of Atelier's trainer: activations as in `forecast` (fewer with gradient
    `checkpointing`), the head in chunks on trained tokens only, and a copy of the adapter in the
    precision of the weights. `storage` is the weights' quantisation."""
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
    """Bytes kept from forward to backward of one micro-batch of `tokens`."""
    if recipe.checkpointing:
        return tokens * shape.layers * shape.hidden * shape.width_bytes
    return int(tokens * shape.layers * _layer_bytes(shape, recipe))


def working_bytes(shape: ModelShape, tokens: int, recipe: Recipe) -> int:
    """Peak bytes beside the activations: of the loss, or of the backward of one layer."""
    layer: float = tokens * shape.width_bytes * _vectors(shape, GRADIENTS)
    if recipe.checkpointing:
        layer += tokens * _layer_bytes(shape, recipe)
    if recipe.dequantised:
        layer += 2 * shape.hidden * shape.intermediate
    return int(max(layer, head_bytes(shape, tokens, recipe)))


def head_bytes(shape: ModelShape, tokens: int, recipe: Recipe) -> float:
    """Bytes of logits, loss and its gradient for a micro-batch of `tokens`."""
    if recipe.logit_bytes:
        return tokens * shape.vocabulary * recipe.logit_bytes
    block = min(tokens, HEAD_ROWS) * min(HEAD_BLOCK, shape.vocabulary)
    return tokens * shape.hidden * SCORED_BYTES + block * (HEAD_LOGIT_BYTES + shape.width_bytes)


def training_bytes(
    shape: ModelShape, rest: int, tokens: int, storage: Storage, recipe: Recipe
) -> int:
    """Peak bytes of a trainer alone, for micro-batches of `tokens`, as counted by PyTorch (without
    the CUDA context). `rest`: weights outside of the linear layers."""
    return (
        weight_bytes(shape, rest, storage)
        + int(recipe.adapter_bytes * shape.adapter)
        + activation_bytes(shape, tokens, recipe)
        + working_bytes(shape, tokens, recipe)
    )


def server_bytes(shape: ModelShape) -> int:
    """Activation bytes of vLLM, as profiled before the KV cache is allocated."""
    tokens = VLLM_TOKENS * shape.width_bytes * _vectors(shape, FORWARD)
    return int(tokens + VLLM_ROWS * shape.vocabulary * VLLM_LOGIT_BYTES)


def cache_bytes(shape: ModelShape, rows: int, context: int) -> int:
    """Bytes of the KV cache of `rows` sequences of `context` tokens."""
    return rows * context * shape.cached_token_bytes


def plan(shape: ModelShape, rest: int, job: Job, recipe: Recipe, room: int) -> Plan:
    """Memory plan of one GPU with `room` bytes for this run; `rest`: weights outside of the linear
    layers. The sampler's KV cache takes what is left: at least one rollout's, at most that of all
    concurrent ones. A trainer is expected to release PyTorch's cached blocks before the other phase
    begins."""
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
    """Add the parts of Atelier's sampler, which stay in memory during training."""
    free = max(0, room - before.sampling)
    copies = copy_bytes(shape, free) if job.storage == "full" else 0
    prompts = min(MOST_PREFILLED, job.rows * job.context) * _vectors(shape, FORWARD)
    parts = [*before.parts, Part(COPIES, copies, copies)]
    parts.append(Part(PREFILL, int(prompts * shape.width_bytes), 0))
    most = min(int(TORCH_CACHE_SHARE * free), room - Plan(tuple(parts), job.overlaps).peak)
    cache = _cache(shape, job, most)
    return [*parts, Part(CACHE, cache, cache)]


def _served(shape: ModelShape, job: Job, weights: int, before: Plan, room: int) -> list[Part]:
    """Add the parts of vLLM: its own weights, and what stays in memory during sleep."""
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

"""Command lines that serve an export in other programs."""

import shlex
from pathlib import Path

from engine.protocol.requests.exports import ExportFormat, ServeCommand

READ_IMAGES = ("Atelier", "vLLM")
"""Programs whose commands serve a model that reads images."""
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM's --max-lora-rank accepts."""


def commands_for(
    folder: Path,
    kind: ExportFormat,
    proven_in: str,
    base: str,
    name: str,
    rank: int,
    images: bool = False,
    experts: bool = False,
) -> list[ServeCommand]:
    """Commands that serve an export in the precision in which it was verified (`proven_in`). `base`
    is a hub id or name, `name` the model name for the server, `rank` that of the adapter. Without
    an explicit setting, other programs may choose a coarser precision. `images`: whether the model
    reads images; only Atelier and vLLM are named then. `experts`: whether an adapter covers
    experts; only Atelier is named then, as the others expect other names of their factors."""
    at, base, name = (shlex.quote(text) for text in (str(folder), base, name))
    ours = ServeCommand(tool="Atelier", command=f"atelier serve-model {at}")
    match kind:
        case "adapter":
            others = [] if experts else _of_adapter(at, base, name, rank, proven_in)
            found = [ours, *others]
        case "merged":
            found = [ours, *_of_merged(at, name, proven_in)]
        case _:
            found = _of_gguf(at, base, name, proven_in)
    return [one for one in found if not images or one.tool in READ_IMAGES]


def vllm_note(proven_in: str) -> str:
    """Note on the precision in a command for vLLM."""
    if proven_in != "float32":
        return f"Verified in {proven_in}."
    return "Verified in float32. Without --dtype, vLLM uses lower precision and outputs can differ."


def _of_adapter(at: str, base: str, name: str, rank: int, proven_in: str) -> list[ServeCommand]:
    most = next((size for size in LORA_RANKS if size >= rank), rank)
    lora = f"--enable-lora --max-lora-rank {most} --lora-modules {name}={at}"
    return [
        ServeCommand(
            tool="vLLM",
            command=f"vllm serve {base} --dtype {proven_in} {lora}",
            note=vllm_note(proven_in),
        ),
        ServeCommand(
            tool="llama.cpp",
            command=f"python convert_lora_to_gguf.py {at} --outfile {name}.gguf && "
            f"llama-server -m base.gguf --lora {name}.gguf --jinja",
            note="base.gguf is the base model as GGUF.",
        ),
        ServeCommand(
            tool="Ollama",
            command=f"printf 'FROM base\\nADAPTER %s\\n' {at} > Modelfile && "
            f"ollama create {name} -f Modelfile && ollama run {name}",
            note="Write Ollama's name of the base model after FROM. Ollama supports adapters of "
            "Llama, Mistral and Gemma.",
        ),
    ]


def _of_merged(at: str, name: str, proven_in: str) -> list[ServeCommand]:
    return [
        ServeCommand(
            tool="vLLM",
            command=f"vllm serve {at} --served-model-name {name} --dtype {proven_in}",
            note=vllm_note(proven_in),
        ),
        ServeCommand(
            tool="Ollama",
            command=f"ollama create {name} -f {at}/Modelfile && ollama run {name}",
            note="Ollama converts Llama, Mistral, Gemma and Phi 3. For others, export as GGUF.",
        ),
        ServeCommand(
            tool="llama.cpp",
            command=f"python convert_hf_to_gguf.py {at} --outfile {name}.gguf && "
            f"llama-server -m {name}.gguf --jinja",
            note="Exporting as GGUF here also compares the result with the trained model.",
        ),
    ]


def _of_gguf(at: str, base: str, name: str, proven_in: str) -> list[ServeCommand]:
    return [
        ServeCommand(tool="llama.cpp", command=f"llama-server -m {at}/model.gguf --jinja"),
        ServeCommand(
            tool="Ollama", command=f"ollama create {name} -f {at}/Modelfile && ollama run {name}"
        ),
        ServeCommand(
            tool="vLLM",
            command=f"vllm serve {at}/model.gguf --tokenizer {base} --served-model-name {name} "
            f"--dtype {proven_in}",
            note="vLLM calls its GGUF support experimental; prefer a merged export.",
        ),
    ]

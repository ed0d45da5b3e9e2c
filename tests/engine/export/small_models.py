"""Random model folders of every architecture that is written as GGUF, with real BPE merges."""

import json
from pathlib import Path

from tests.support.tiny_model import TEMPLATE

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WORDS = ["th", "the", "an", "in", "Ġt", "Ġthe", "Ġa"]
MERGES = [("t", "h"), ("th", "e"), ("a", "n"), ("i", "n"), ("Ġ", "t"), ("Ġt", "he"), ("Ġ", "a")]


def make_model(
    folder: Path, architecture: str = "Llama", seed: int = 0, **settings: object
) -> Path:
    """Model with hidden size 64, two layers, heads of 32, two key heads."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers.utils import logging

    logging.disable_progress_bar()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: n for n, token in enumerate([*SPECIAL, *alphabet, *WORDS, "he"])}
    tokenizer = Tokenizer(BPE(vocabulary, MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    torch.manual_seed(seed)
    config = getattr(transformers, f"{architecture}Config")(
        vocab_size=len(vocabulary) + 5,  # padded, like many models
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=128 if architecture == "Qwen3" else 32,  # transformers reads Qwen3's as 128
        max_position_embeddings=512,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        tie_word_embeddings=architecture == "Llama",
        **settings,
    )
    if architecture == "Qwen2":
        del config.head_dim  # Qwen2 has no head_dim
    model = getattr(transformers, f"{architecture}ForCausalLM")(config)
    for name, parameter in model.named_parameters():
        if name.endswith(("bias", "norm.weight")):  # ones and zeros would hide mistakes
            torch.nn.init.normal_(parameter, mean=float("norm" in name), std=0.1)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {"eos_token": "<|im_end|>", "bos_token": "<|im_start|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return folder

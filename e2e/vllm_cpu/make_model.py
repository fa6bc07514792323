"""Writes a random-weight Llama with a byte-level tokenizer, so that real vLLM can serve without a download.

One token is one byte, so a prompt's token count is its length; every output token is printable and hardly ever EOS, so
`max_tokens` decides the output's length. 256 4 gives 6 MB; 1024 12 gives 251 MB, where the time per token visibly
depends on the batch.

Usage: make_model.py DIR HIDDEN LAYERS (HIDDEN a multiple of 64)
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

BOS, EOS = 0, 1
VOCABULARY = 258  # 256 bytes, BOS and EOS: every id decodes
HEAD_SIZE = 64
CONTEXT = 8192
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def tokenizer() -> tuple[Tokenizer, set[int]]:
    """The byte-level tokenizer, and the ids of printable ASCII."""
    ids = {"<s>": BOS, "</s>": EOS}
    ids |= {symbol: 2 + i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Tokenizer(models.BPE(vocab=ids, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<s>", "</s>"])
    printable = {ids[made.pre_tokenizer.pre_tokenize_str(chr(code))[0][0]] for code in range(32, 127)}
    return made, printable


def configuration(hidden: int, layers: int) -> dict[str, object]:
    """The Hugging Face config.json of the model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": hidden * 8 // 3 // 64 * 64,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // HEAD_SIZE,
        "num_key_value_heads": max(1, hidden // 256),
        "head_dim": HEAD_SIZE,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "torch_dtype": "bfloat16",
    }


def weights(hidden: int, layers: int, printable: set[int]) -> dict[str, torch.Tensor]:
    """Random weights whose output is printable.

    Channel 0 of the residual stream is a constant that no layer reads or writes; through column 0 of lm_head it is a
    bias of each output id: +2 for printable ASCII, -2 for all others, EOS included.
    """
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int, scale: float = 0.3 / hidden**0.5) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator) * scale).to(torch.bfloat16)

    def ones() -> torch.Tensor:
        return torch.ones(hidden, dtype=torch.bfloat16)

    inner = hidden * 8 // 3 // 64 * 64
    keys = max(1, hidden // 256) * HEAD_SIZE
    embedding, head = random(VOCABULARY, hidden), random(VOCABULARY, hidden, scale=0.3)
    embedding[:, 0] = hidden**0.5 / 4
    head[:, 0] = torch.tensor([2.0 if i in printable else -2.0 for i in range(VOCABULARY)])
    made = {"model.embed_tokens.weight": embedding, "model.norm.weight": ones(), "lm_head.weight": head}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        attention = {"self_attn.q_proj": hidden, "self_attn.k_proj": keys, "self_attn.v_proj": keys}
        for name, rows in (attention | {"mlp.gate_proj": inner, "mlp.up_proj": inner}).items():
            made[f"{prefix}{name}.weight"] = random(rows, hidden)
            made[f"{prefix}{name}.weight"][:, 0] = 0
        for name, columns in {"self_attn.o_proj": hidden, "mlp.down_proj": inner}.items():
            made[f"{prefix}{name}.weight"] = random(hidden, columns)
            made[f"{prefix}{name}.weight"][0, :] = 0
        made[f"{prefix}input_layernorm.weight"] = ones()
        made[f"{prefix}post_attention_layernorm.weight"] = ones()
    return made


def main(folder: Path, hidden: int, layers: int) -> None:
    """Write the model into `folder`, as vLLM loads it from a path."""
    folder.mkdir(parents=True, exist_ok=True)
    made, printable = tokenizer()
    made.save(str(folder / "tokenizer.json"))
    documents = {
        "config.json": configuration(hidden, layers),
        "generation_config.json": {"bos_token_id": BOS, "eos_token_id": EOS},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "model_max_length": CONTEXT,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=1) + "\n")
    tensors = weights(hidden, layers, printable)
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    print(f"{folder}: {sum(t.numel() for t in tensors.values()) / 1e6:.1f} M parameters")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: make_model.py DIR HIDDEN LAYERS")
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

"""A toy model and a byte tokenizer: decoder tests run in milliseconds.

The toy is a two-layer Llama of random weights. Its LM head is wide, so that some positions
are sharp and some nearly tied; characters outside ASCII are rarer than others. The tokenizer is
a real byte-level BPE, so that characters are split over tokens and tokens end inside
characters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gate.models import LoadedModel

MERGES = (
    b"t h,th e, t,e r,i n,a b,ab c,\n \n,E N,EN D,# #,\xc3 \xa9,\xe2 \x82,\xe2\x82 \xac,"
    b"\xf0 \x9f,\xf0\x9f \x98,  \xe2,a \xc3,o n,\xa9 s"
)
SPECIALS = ("<|end|>", "<|stop|>", "<|user|>", "<|assistant|>")
END, STOP = 276, 277
CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def byte_alphabet() -> dict[int, str]:
    """The printable character that stands for each byte in byte-level vocabularies."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in printable]
    shown = {byte: chr(byte) for byte in printable}
    return shown | {byte: chr(256 + index) for index, byte in enumerate(hidden)}


def build_byte_tokenizer() -> Any:
    """Token ids 0 to 255 are the bytes, then come the merges, then the special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    alphabet = byte_alphabet()

    def spell(half: bytes) -> str:
        return "".join(alphabet[byte] for byte in half)

    halves = [split_merge(merge) for merge in MERGES.split(b",")]
    shown = [(spell(left), spell(right)) for left, right in halves]

    vocab = {alphabet[byte]: byte for byte in range(256)}
    vocab |= {left + right: 256 + index for index, (left, right) in enumerate(shown)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=shown))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIALS])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=SPECIALS[0])
    fast.chat_template = CHAT_TEMPLATE
    return fast


def split_merge(merge: bytes) -> tuple[bytes, bytes]:
    """Split at the blank between the halves; a half may begin with a blank of its own."""
    at = merge.rindex(b" ")
    return merge[:at] or b" ", merge[at + 1 :]


def build_toy_model(vocab_size: int) -> Any:
    """A random Llama in float32: grouped-query attention, context of 512."""
    import torch  # noqa: PLC0415
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.12,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.lm_head.weight.normal_(0.0, 0.6)
        model.lm_head.weight[:10] *= 0.5
        model.lm_head.weight[127:256] *= 0.6
        for layer in model.model.layers:  # attention that matters: far tokens, and where they are
            layer.self_attn.q_proj.weight *= 4.0
            layer.self_attn.k_proj.weight *= 4.0
            layer.self_attn.o_proj.weight *= 3.0
    return model


@pytest.fixture(scope="session")
def byte_tokenizer() -> Any:
    """A byte-level BPE tokenizer with a few merges and a chat template."""
    return build_byte_tokenizer()


@pytest.fixture(scope="session")
def toy(byte_tokenizer: Any) -> LoadedModel:
    """The toy model, wrapped as decoders get it."""
    from gate.models import wrap_model  # noqa: PLC0415

    return wrap_model(build_toy_model(len(byte_tokenizer)), byte_tokenizer, "toy")

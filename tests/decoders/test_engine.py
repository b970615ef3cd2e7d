"""The slot cache against a stock forward; which architectures it refuses."""

from __future__ import annotations

import gc
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig

from gate.decoders import engine
from gate.decoders.autoregressive import AutoregressiveDecoder
from gate.decoders.engine import Engine, check_architecture
from gate.decoders.lookahead import LookaheadDecoder
from gate.decoders.options import AutoregressiveOptions, LookaheadOptions
from gate.errors import UsageError
from gate.models import LoadedModel
from tests.decoders.helpers import TINY, build_tiny, draw_prompt, make_request, stock_logits

TREE_PARENTS = (-1, 0, 0, 2, 3, 1)  # row 0, and a tree of two branches
TREE_DEPTHS = (0, 1, 1, 2, 3, 2)


def prompts(*lengths: int) -> list[tuple[int, ...]]:
    """Random prompts of these lengths."""
    rng = random.Random(2)
    return [draw_prompt(rng, length) for length in lengths]


def ancestors(row: int) -> list[int]:
    """Rows from row 0 to ``row``."""
    path = [row]
    while TREE_PARENTS[path[0]] >= 0:
        path.insert(0, TREE_PARENTS[path[0]])
    return path


def run_tree(runner: Engine, tokens: np.ndarray) -> torch.Tensor:
    """Logits at every row of the tree, for each request."""
    mask = np.zeros((len(tokens), 6, 6), dtype=bool)
    for row in range(6):
        mask[:, row, ancestors(row)] = True
    depths = np.broadcast_to(np.array(TREE_DEPTHS), tokens.shape)
    return runner.forward(tokens, depths, mask, range(6))


def assert_stock(model: LoadedModel, logits: torch.Tensor, committed: Sequence[int]) -> None:
    """The row's logits are those of a plain forward over the committed tokens."""
    torch.testing.assert_close(logits, stock_logits(model, committed, ())[-1], rtol=1e-4, atol=1e-4)


@pytest.fixture(params=["toy", *sorted(TINY)])
def model(request: pytest.FixtureRequest, toy: LoadedModel, byte_tokenizer: Any) -> LoadedModel:
    """Each accepted shape."""
    return toy if request.param == "toy" else build_tiny(request.param, byte_tokenizer)


def test_every_row_of_a_tree_equals_a_plain_forward_over_its_branch(model: LoadedModel) -> None:
    batch = prompts(9, 1, 17)
    runner = Engine(model.model, 3, 40)
    for row, prompt in zip(runner.prefill(batch), batch, strict=True):
        assert_stock(model, row, prompt)
    tokens = np.array(prompts(6, 6, 6))
    logits = run_tree(runner, tokens)
    for b, prompt in enumerate(batch):
        for row in range(6):
            assert_stock(model, logits[b, row], (*prompt, *tokens[b, ancestors(row)].tolist()))


def test_committed_rows_move_forward_and_rejected_ones_leave_no_trace(model: LoadedModel) -> None:
    batch = prompts(9, 4)
    runner = Engine(model.model, 2, 60)
    runner.prefill(batch)
    known = [list(prompt) for prompt in batch]
    paths = [([0, 2, 3, 4], [0]), ([0, 1, 5], [0, 2]), ([0], [0, 1, 5])]
    rng = random.Random(4)
    for chosen in paths:
        tokens = np.array([draw_prompt(rng, 6), draw_prompt(rng, 6)])
        logits = run_tree(runner, tokens)
        for b, path in enumerate(chosen):
            assert_stock(model, logits[b, 0], (*known[b], tokens[b, 0]))
            runner.commit(b, path)
            known[b] += tokens[b, path].tolist()
    assert runner.lengths.tolist() == [len(ids) for ids in known]
    logits = run_tree(runner, np.array([draw_prompt(rng, 6)] * 2))
    for b in range(2):
        assert not torch.allclose(logits[b, 0], logits[1 - b, 0])


@pytest.mark.parametrize("n_rows", [1, 3, 8, 16])
def test_a_prompt_prefilled_in_pieces_equals_one_piece(
    toy: LoadedModel, monkeypatch: pytest.MonkeyPatch, n_rows: int
) -> None:
    batch = prompts(16, 1, 7, 24, 8)
    whole = Engine(toy.model, 5, 40)
    expected = whole.prefill(batch)
    monkeypatch.setattr(engine, "PREFILL_ROWS", n_rows)
    pieces = Engine(toy.model, 5, 40)
    torch.testing.assert_close(pieces.prefill(batch), expected, rtol=1e-4, atol=1e-4)
    assert pieces.lengths.tolist() == whole.lengths.tolist() == [16, 1, 7, 24, 8]
    tokens = np.array(prompts(6, 6, 6, 6, 6))
    torch.testing.assert_close(
        run_tree(pieces, tokens), run_tree(whole, tokens), rtol=1e-4, atol=1e-4
    )


def test_a_request_that_takes_over_a_slot_keeps_its_tokens(toy: LoadedModel) -> None:
    batch = prompts(20, 5, 9)
    runner = Engine(toy.model, 3, 40)
    runner.prefill(batch)
    runner.move_request(2, 0)
    tokens = np.array(prompts(6, 6))
    logits = run_tree(runner, tokens)
    for b, prompt in enumerate((batch[2], batch[1])):
        assert_stock(toy, logits[b, 4], (*prompt, *tokens[b, ancestors(4)].tolist()))


def test_only_the_rows_asked_for_are_read(toy: LoadedModel) -> None:
    runner = Engine(toy.model, 1, 40)
    runner.prefill(prompts(5))
    tokens = np.array(prompts(6))
    mask = np.tri(6, dtype=bool)[None]
    depths = np.arange(6)[None]
    logits = runner.forward(tokens, depths, mask, [1, 4])
    assert logits.shape == (1, 2, toy.vocab_size)
    whole = runner.forward(tokens, depths, mask, range(6))
    torch.testing.assert_close(logits, whole[:, [1, 4]], rtol=1e-4, atol=1e-4)


# -------------------------------------------------------------- architectures

FULL = ("llama", "mistral", "qwen2", "qwen3", "gpt2")
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "mistral with a window": ("mistral", {"sliding_window": 8}, "DynamicSlidingWindowLayer"),
    "qwen2 with a window": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0},
        "DynamicSlidingWindowLayer",
    ),
    "gemma 2": ("gemma2", {}, "DynamicSlidingWindowLayer"),
    "gemma 3": ("gemma3_text", {}, "DynamicSlidingWindowLayer"),
    "gpt-oss": ("gpt_oss", {}, "DynamicSlidingWindowLayer"),
    "mamba": ("mamba", {}, "recurrent state"),
    "mamba 2": ("mamba2", {}, "recurrent state"),
    "jamba": ("jamba", {}, "LinearAttentionLayer"),
    "recurrent gemma": ("recurrent_gemma", {}, "LinearAttentionLayer"),
    "t5": ("t5", {}, "encoder"),
    "bart": ("bart", {}, "encoder"),
    "bloom": ("bloom", {}, "ALiBi"),
    "mpt": ("mpt", {}, "ALiBi"),
    "falcon with alibi": ("falcon", {"alibi": True}, "ALiBi"),
    "gpt-neo": ("gpt_neo", {}, "local attention"),
    "deepseek": ("deepseek_v3", {}, "compressed keys"),
    "dynamic rope": (
        "llama",
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
        "change with the length",
    ),
}


@pytest.mark.parametrize("kind", FULL)
def test_full_attention_is_accepted(kind: str) -> None:
    check_architecture(AutoConfig.for_model(kind, **TINY[kind]), kind)


def test_a_window_that_is_configured_but_off_is_accepted() -> None:
    check_architecture(
        AutoConfig.for_model("qwen2", use_sliding_window=False, sliding_window=8), "q"
    )


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_slot_cache_cannot_hold_is_refused_by_name(name: str) -> None:
    kind, fields, text = REFUSED[name]
    with pytest.raises(UsageError, match=text) as caught:
        check_architecture(AutoConfig.for_model(kind, **fields), "the model")
    assert "'the model'" in str(caught.value)
    assert "kind = 'python'" in str(caught.value)


def test_a_decoder_of_ours_cannot_be_made_for_a_model_it_would_get_wrong(
    toy: LoadedModel,
    byte_tokenizer: Any,
) -> None:
    windowed = build_tiny("mistral", byte_tokenizer, sliding_window=8)
    for make in (
        lambda: AutoregressiveDecoder(windowed, AutoregressiveOptions()),
        lambda: LookaheadDecoder(windowed, LookaheadOptions()),
    ):
        with pytest.raises(UsageError, match="DynamicSlidingWindowLayer"):
            make()
    assert LookaheadDecoder(toy, LookaheadOptions(window=3)).spec.options["window"] == 3


@pytest.mark.parametrize("rows", [None, 1, 8])
def test_the_slots_of_a_batch_go_with_it_and_wait_for_no_garbage_collector(
    toy: LoadedModel, rows: int | None
) -> None:
    decoder = LookaheadDecoder(toy, LookaheadOptions(rows=rows))
    gc.collect()
    gc.disable()
    try:
        list(decoder.generate([make_request(max_tokens=4)]))
        alive = [found for found in gc.get_objects() if type(found) is engine.SlotCache]
    finally:
        gc.enable()
    assert not alive

"""Make a draft model out of the model itself: the same network with some layers left out.

A draft model must share the model's vocabulary. There is no smaller one of the embedded model, so
this writes one: of its 30 layers all but two in the middle, without any training. It agrees with
the model often enough to be exercised; it is far too large to speed anything up. A draft that is
cut further is cheaper, and so much more often wrong that the run takes longer.

    python examples/assisted/make_draft.py          writes examples/assisted/draft (git ignores it)
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from gate.config import ModelConfig
from gate.models import resolve_model

HERE = Path(__file__).parent


def cut_layers(model: nn.Module, dropped: range) -> None:
    """Leave layers out, in place; the others keep their order."""
    layers = model.model.layers
    model.model.layers = nn.ModuleList(layer for n, layer in enumerate(layers) if n not in dropped)
    for n, layer in enumerate(model.model.layers):
        layer.self_attn.layer_idx = n
    model.config.num_hidden_layers = len(model.model.layers)


def main() -> None:
    """Write the draft model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="embedded:smollm2-135m-instruct")
    parser.add_argument("--out", type=Path, default=HERE / "draft")
    parser.add_argument("--drop", type=int, nargs=2, default=(17, 19), metavar=("FROM", "BEHIND"))
    options = parser.parse_args()
    source = resolve_model(ModelConfig(id=options.model), Path.cwd())
    model = AutoModelForCausalLM.from_pretrained(source.folder, dtype=torch.float32)
    cut_layers(model, range(*options.drop))
    model.save_pretrained(options.out)
    AutoTokenizer.from_pretrained(source.folder).save_pretrained(options.out)


if __name__ == "__main__":
    main()

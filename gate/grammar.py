"""Constrained output: which tokens a ``response_format`` allows after an output so far.

The grammar is compiled by llguidance (the ``local`` extra). Between JSON tokens one blank, or
a line break with its indentation, is allowed: enough for the usual layouts, and an output
cannot go on with blanks for ever. Decoders follow their output with :class:`Matcher`; the
referee walks the same compiled grammar in a way of its own (referee_law).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gate.records import Request

WHITESPACE = r"[ ]?|\n[ ]{0,16}"
INSTALL = "pip install llguidance"


class GrammarError(ValueError):
    """A response_format that cannot be enforced; its text is one sentence."""


def compile_format(response_format: dict[str, Any]) -> str:
    """Return llguidance's grammar of a ``response_format``. Raises GrammarError."""
    kind = response_format.get("type")
    if kind == "json_object":
        return _compile_schema({"type": "object"})
    if kind != "json_schema":
        msg = f"response_format.type = {kind!r}; allowed are 'json_schema' and 'json_object'"
        raise GrammarError(msg)
    schema = read_schema(response_format)
    if schema is None:
        msg = "response_format.json_schema.schema is missing; give it a JSON schema"
        raise GrammarError(msg)
    return _compile_schema(schema)


def read_schema(response_format: dict[str, Any]) -> dict[str, Any] | None:
    """Return the JSON schema inside a ``response_format``, or None."""
    outer = response_format.get("json_schema")
    schema = outer.get("schema") if isinstance(outer, dict) else None
    return schema if isinstance(schema, dict) else None


def _compile_schema(schema: dict[str, Any]) -> str:
    lib = load_library()
    try:
        grammar: str = lib.LLMatcher.grammar_from_json_schema(
            json.dumps(schema), overrides={"whitespace_pattern": WHITESPACE}
        )
        fault = lib.LLMatcher.validate_grammar(grammar)
    except (TypeError, ValueError) as error:
        fault = str(error)
    if fault and not fault.startswith("WARNING"):
        msg = f"response_format holds a schema that cannot be enforced: {_one_line(fault)}"
        raise GrammarError(msg)
    return grammar


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def load_library() -> Any:
    """Import llguidance. Raises GrammarError where it is not installed."""
    try:
        import llguidance  # noqa: PLC0415 - only constrained requests need it
        import llguidance.hf  # noqa: PLC0415
    except ImportError as error:
        msg = f"response_format needs the package llguidance; run: {INSTALL}"
        raise GrammarError(msg) from error
    return llguidance


@lru_cache(maxsize=4)
def load_vocabulary(tokenizer: Any) -> Any:
    """Return llguidance's view of a tokenizer; about a second. Raises GrammarError."""
    lib = load_library()
    try:
        return lib.hf.from_tokenizer(tokenizer)
    except (TypeError, ValueError) as error:
        msg = f"response_format needs a fast tokenizer: {_one_line(str(error))}"
        raise GrammarError(msg) from error


def find_format_fault(response_format: object, tokenizer: Any) -> str | None:
    """Return in one sentence why a ``response_format`` cannot be enforced, or None."""
    if response_format is None:
        return None
    if not isinstance(response_format, dict):
        return f"response_format = {response_format!r}; it must be a mapping with a 'type'"
    try:
        compile_format(response_format)
        load_vocabulary(tokenizer)
    except GrammarError as error:
        return str(error)
    return None


def open_matcher(request: Request, tokenizer: Any) -> Matcher | None:
    """Return the matcher of a request; None where its output is free. Raises GrammarError."""
    if request.response_format is None:
        return None
    grammar = compile_format(request.response_format)
    return Matcher(grammar, load_vocabulary(tokenizer), request.eos_ids)


class Matcher:
    """Follows one output through its grammar; a shorter or other output rolls it back."""

    def __init__(self, grammar: str, vocabulary: Any, eos_ids: Sequence[int]) -> None:
        self._matcher = load_library().LLMatcher(vocabulary, grammar, log_level=0)
        self._own_eos = list(vocabulary.eos_tokens)
        self._eos_ids = list(eos_ids)
        self._taken: list[int] = []

    def allowed(self, output: Sequence[int], n_vocab: int) -> np.ndarray:
        """Which tokens may follow ``output``: (n_vocab,), bool.

        End-of-sequence ids are allowed exactly where the output is complete. Raises
        GrammarError where ``output`` itself left the grammar.
        """
        self._follow(output)
        packed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        bits = np.unpackbits(packed, bitorder="little").astype(bool)[:n_vocab]
        mask = np.zeros(n_vocab, dtype=bool)
        mask[: len(bits)] = bits
        mask[[i for i in self._own_eos if i < n_vocab]] = False
        mask[self._eos_ids] = self._matcher.is_accepting()
        return mask

    def _follow(self, output: Sequence[int]) -> None:
        n_same = 0
        while n_same < min(len(output), len(self._taken)) and output[n_same] == self._taken[n_same]:
            n_same += 1
        if n_same < len(self._taken):
            self._matcher.rollback(len(self._taken) - n_same)
            del self._taken[n_same:]
        for token in output[n_same:]:
            if self._matcher.validate_tokens([token]) != 1:
                msg = f"token {token} at output position {len(self._taken)} leaves the grammar"
                raise GrammarError(msg)
            self._matcher.consume_token(token)
            self._taken.append(token)

"""Decoders of one's own: what the gate passes to them, and what their failures become."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from gate.decoders.base import read_spec
from gate.decoders.python import PythonDecoder
from gate.errors import RunError, UsageError
from gate.records import Generation, Request


class Inner:
    """Remembers the sizes of its calls; breaks at a request named 'break'."""

    def __init__(self, _: Any, **options: object) -> None:
        self.options = options
        self.sizes: list[int] = []
        self.max_batch = 3

    def generate(self, requests: Sequence[Request]) -> Iterator[Generation]:
        self.sizes.append(len(requests))
        for request in requests:
            if request.id == "break":
                msg = "it broke"
                raise ValueError(msg)
            yield Generation(request_id=request.id, token_ids=(1,), finish="length")


def make(made: list[Inner], **table: object) -> PythonDecoder:
    spec = read_spec("candidate", {"kind": "python", "target": "own:make", **table})

    def factory(model: Any, **options: object) -> Inner:
        made.append(Inner(model, **options))
        return made[-1]

    model: Any = None
    return PythonDecoder(spec, model, factory)


def make_requests(*names: str) -> list[Request]:
    return [Request(id=n, task="t", request_class="c", prompt=(1,), max_tokens=1) for n in names]


@pytest.mark.parametrize(
    ("table", "sizes"), [({}, [3, 1]), ({"max_batch": 2}, [2, 2]), ({"max_batch": 9}, [4])]
)
def test_max_batch_of_the_table_goes_before_the_attribute(
    table: dict[str, object], sizes: list[int]
) -> None:
    made: list[Inner] = []
    assert len(list(make(made, **table).generate(make_requests(*"abcd")))) == 4
    assert made[0].sizes == sizes


def test_only_other_keys_reach_the_factory() -> None:
    made: list[Inner] = []
    decoder = make(made, max_batch=2, noise="position_keyed", speculate=4)
    assert made[0].options == {"speculate": 4}
    assert decoder.spec.noise == "position_keyed"


def test_max_batch_is_known_when_batches_are_planned() -> None:
    table = {"kind": "python", "target": "own:make", "max_batch": 2}
    assert read_spec("candidate", table).max_batch == 2


@pytest.mark.parametrize(("key", "value"), [("max_batch", 0), ("max_batch", "2"), ("noise", "x")])
def test_keys_of_the_gate_are_checked_by_name(key: str, value: object) -> None:
    with pytest.raises(UsageError, match=key):
        read_spec("candidate", {"kind": "python", "target": "own:make", key: value})


def test_a_crash_fails_the_requests_of_its_call_alone() -> None:
    found = list(make([], max_batch=2).generate(make_requests("a", "break", "c", "d")))
    assert {g.request_id for g in found if g.finish == "error"} == {"break"}
    assert [g.error for g in found if g.error] == ["ValueError: it broke"]


def test_a_factory_that_raises_is_named() -> None:
    spec = read_spec("candidate", {"kind": "python", "target": "own:make"})
    model: Any = None
    with pytest.raises(RunError, match="own:make: the factory raised"):
        PythonDecoder(spec, model, lambda _, **options: options["missing"])

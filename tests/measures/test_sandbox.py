"""Evalset templates write prompts; they compute nothing large."""

from __future__ import annotations

import time

import pytest
from jinja2.exceptions import TemplateError, UndefinedError

from gate.measures import tasks
from gate.measures.sandbox import BoundedEnvironment

HARNESS = vars(tasks)["harness"]  # lm-eval's, as the gate leaves it
MOST_S = 2.0

ROW = {"prompt": "say  hi", "choices": ["a", "b"], "n": 10**9, "long": "x" * 10_000}

FINE = (
    ("{{prompt}}", "say  hi"),
    ("Q: {{ prompt | trim | upper }}\nA:", "Q: SAY  HI\nA:"),
    ("{% for c in choices %}{{ loop.index }}. {{ c }}\n{% endfor %}", "1. a\n2. b\n"),
    ("{{ choices | join(', ') }}{{ '!' * 3 }}", "a, b!!!"),
    ("{{ choices.index('b') + 1 }}", "2"),
    ("{{ prompt.split()[0] }}{% if choices %} yes{% endif %}", "say yes"),
    ("{% set first = choices[0] %}{{ first ~ '-' ~ prompt }}", "a-say  hi"),
    ("{{ 7 % 4 }}", "3"),
    ("{{ prompt | regex_replace('i', 'o') }}", "say  ho"),
)
REFUSED = (
    "{{ 'x' * 10**10 }}",
    "{{ 'x' * 10000000000 }}",
    "{{ 'x' * n }}",
    "{{ long * 1000 }}",
    "{{ [1] * 9999999 }}",
    "{{ 9**9**9 }}",
    "{{ 'x'.ljust(n) }}",
    "{{ 'x' | center(n) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ '{:>1000000000}'.format(1) }}",
    "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
    "{% for a in range(100000) %}" + "x" * 50 + "{% endfor %}",
    "{% set a = long ~ long %}{{ a }}",
    "{% set a = long %}" + "{% set a = a + a %}" * 40,
    "{% set a %}{{ long }}{% endset %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% set ns = namespace(x=long) %}",
    "{{ lipsum(1000) }}",
    "{{ ''.__class__.__mro__ }}",
)


def render(template: str) -> str:
    """Render as lm-eval does."""
    assert isinstance(HARNESS.env, BoundedEnvironment)  # else this machine would be full
    text: str = HARNESS.apply_template(template, ROW)
    return text


@pytest.mark.parametrize(("template", "text"), FINE)
def test_what_a_prompt_needs_is_rendered(template: str, text: str) -> None:
    assert render(template) == text


@pytest.mark.parametrize("template", REFUSED)
def test_what_would_take_the_memory_or_the_processor_is_refused_at_once(template: str) -> None:
    began = time.perf_counter()
    with pytest.raises((TemplateError, UndefinedError)):
        render(template)
    assert time.perf_counter() - began < MOST_S

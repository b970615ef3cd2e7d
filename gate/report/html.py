"""The page itself: one HTML file that asks nothing of the network.

The content policy admits the page's own style and script by hash and nothing else, so
that text out of a model stays text even if an escape were ever forgotten.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gate.export.text import to_block
from gate.report.plots import WIDTH
from gate.report.view import make_page

if TYPE_CHECKING:
    from gate.records import Decision


def render_html(decision: Decision, expired: str = "") -> str:
    """Return the decision as one self-contained page. expired: why it no longer stands.

    Errors: RunError where an outcome is unknown.
    """
    return render_page("report.html.j2", page=make_page(decision, expired), width=WIDTH)


def render_page(template: str, **values: object) -> str:
    """Return a template of ours with ``values``, our style and script and their hashes."""
    style, script = _read_asset("report.css"), _read_asset("report.js")
    return (
        _make_environment()
        .get_template(template)
        .render(
            style=Markup(style),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704 - our own file
            style_hash=_hash_source(style),
            script_hash=_hash_source(script),
            **values,
        )
    )


@cache
def _make_environment() -> Environment:
    return Environment(
        loader=PackageLoader("gate.report"),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _finalize(value: object) -> object:
    """Make everything a template prints visible and bounded; our own markup passes."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return to_block(value)
    return value


@cache
def _read_asset(name: str) -> str:
    return files("gate.report").joinpath("templates", name).read_text(encoding="utf-8")


def _hash_source(source: str) -> str:
    digest = hashlib.sha256(source.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"

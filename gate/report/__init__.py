"""The decision as one self-contained HTML page."""

from __future__ import annotations

from gate.report.html import render_html

__all__ = ["render_html"]

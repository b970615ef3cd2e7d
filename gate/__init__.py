"""The release gate for language-model decoding changes."""

from __future__ import annotations

__version__ = "0.1.0"

"""The decision for other machines: JUnit, markdown, and signals for monitors."""

from __future__ import annotations

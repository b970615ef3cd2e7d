"""What the pytest plugin does once it is asked: items, fixtures, the summary."""

from __future__ import annotations

"""Measures: paired runs in, comparisons out."""

"""Measurements of speed and memory: ratios against a peer in the same run. `python -m benchmarks.NAME`."""

"""Decoders: requests in, generations out."""

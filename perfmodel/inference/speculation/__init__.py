"""Speculative decoding: what is accepted, what a round costs, and which setting is best."""

"""Readers of Hugging Face configs, one module per group of families."""

from perfmodel.specs.architectures.registry import build_model, known_types

__all__ = ["build_model", "known_types"]

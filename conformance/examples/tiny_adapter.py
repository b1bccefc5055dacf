"""A calculator of three well-known formulas, and the adapter that asks it.

The first formula is the one that most pages print, and right for most models.
"""

from __future__ import annotations

from conformance.truth import Question


def cache_bytes(layers: int, hidden: int, heads: int, kv_heads: int) -> int:
    """Keys and values of one token in 16 bits."""
    return 2 * layers * kv_heads * (hidden // heads) * 2


def touched(experts: int, top_k: int, tokens: int) -> float:
    """Distinct experts under uniform routing."""
    return experts * (1 - (1 - top_k / experts) ** tokens)


def round_tokens(acceptance: float, drafted: int) -> float:
    """Tokens of a speculative round, one term a token."""
    return sum(acceptance**depth for depth in range(drafted + 1))


class TinyCalculator:
    """The adapter: a method for each kind that the calculator knows."""

    def kv_bytes_per_token(self, question: Question) -> float | None:
        """From the config, where it has the usual keys; not under TP, not quantised."""
        assert question.model is not None  # noqa: S101  (this kind names one)
        config = question.model.config
        needed = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads")
        plain = question["tp"] == 1 and question["cache"] == "bf16"
        if not plain or not all(key in config for key in needed):
            return None
        return cache_bytes(*(config[key] for key in needed))

    def expected_experts(self, question: Question) -> float:
        """As it is."""
        return touched(question["experts"], question["top_k"], question["tokens"])

    def tokens_per_round(self, question: Question) -> float:
        """As it is."""
        return round_tokens(question["acceptance"], question["draft_tokens"])

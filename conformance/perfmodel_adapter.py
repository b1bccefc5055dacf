"""perfmodel's own answers: the only module here that knows it.

Counts of a step are taken from `perfmodel.estimate`'s record, what users see; the hardware named
there doesn't matter to a count.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import perfmodel
from conformance.truth import ModelFacts, Question
from perfmodel.inference.speculation.acceptance import expected_tokens
from perfmodel.operators.cache import cache_bytes, kv_bytes_per_token, state_bytes
from perfmodel.operators.expert_routing import expected_experts
from perfmodel.operators.format_bytes import matrix_bytes
from perfmodel.operators.masks import causal_pairs, chunked_pairs
from perfmodel.operators.record import Attention, Gemm
from perfmodel.specs.cache_formats import cache_format
from perfmodel.specs.formats import number_format

HARDWARE = "h100-sxm"
ENGINE = "compiled"
"""A preset that pads no weights."""
STATE_BYTES = {"bf16": 2.0, "fp32": 4.0}
BITS_PER_BYTE = 8
Load = Callable[[ModelFacts], perfmodel.Model]


def by_name(facts: ModelFacts) -> perfmodel.Model:
    """The catalogue's model of that name, else the one that the question describes."""
    if facts.name in perfmodel.model_names():
        return perfmodel.load_model(facts.name)
    return by_config(facts)


def by_config(facts: ModelFacts) -> perfmodel.Model:
    """The model that the question's own config describes."""
    return _read(json.dumps(dict(facts.config)), facts.name)


@lru_cache(maxsize=256)
def _read(config: str, name: str) -> perfmodel.Model:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.json"
        path.write_text(config, encoding="utf-8")
        return perfmodel.load_model(path)


class PerfmodelAdapter:
    """Asks perfmodel; ``load`` says where its models come from."""

    def __init__(self, load: Load = by_name) -> None:
        self._load = load

    def answer(self, question: Question) -> float | None:
        """Perfmodel's answer, by the method that is named like the kind."""
        answer: float | None = getattr(self, f"_{question.kind}")(question)
        return answer

    def _model(self, q: Question) -> perfmodel.Model:
        assert q.model is not None  # noqa: S101  (the kind needs one)
        return self._load(q.model)

    def _estimate(self, q: Question, workload: perfmodel.Workload, **deployment: Any) -> Any:
        chosen = perfmodel.Deployment(
            **{"weights": "bf16", "kv_cache": "bf16", "engine": ENGINE, **deployment}
        )
        return perfmodel.estimate_record(
            perfmodel.estimate(self._model(q), HARDWARE, workload, chosen)
        )

    def _prefill(self, q: Question, new: int, cached: int = 0, batch: int = 1) -> Any:
        workload = perfmodel.Workload(
            batch=batch, prompt=cached + new, cached_prefix=cached, output=1
        )
        return self._estimate(q, workload)["prefill"]

    def _decode(self, q: Question, cached: int, batch: int) -> Any:
        workload = perfmodel.Workload(batch=batch, prompt=cached, output=2)
        return self._estimate(q, workload)["decode"]

    # Weights

    def _parameters(self, q: Question) -> float:
        return perfmodel.count_parameters(self._model(q)).total

    def _text_parameters(self, q: Question) -> float:
        return perfmodel.count_parameters(self._model(q)).text

    def _active_parameters(self, q: Question) -> float:
        return perfmodel.count_parameters(self._model(q)).active

    def _mtp_parameters(self, q: Question) -> float:
        return perfmodel.count_parameters(self._model(q)).mtp

    def _weight_bytes(self, q: Question) -> float:
        weights = "auto" if q["format"] == "checkpoint" else q["format"]
        record = self._estimate(q, perfmodel.Workload(), weights=weights)
        return float(record["memory"]["weights_bytes"])

    def _decode_weight_bytes(self, q: Question) -> float:
        operators = self._decode(q, 1, q["batch"])["operators"]
        return float(sum(operator["weight_bytes"] for operator in operators))

    def _bits_per_weight(self, q: Question) -> float:
        rows, columns = q["rows"], q["columns"]
        stored = matrix_bytes(number_format(q["format"]), rows, columns)
        return float(stored * BITS_PER_BYTE / (rows * columns))

    # Caches

    def _kv_bytes_per_token(self, q: Question) -> float:
        if q["tp"] == 1:
            return kv_bytes_per_token(self._model(q), cache_format(q["cache"]))
        record = self._estimate(q, perfmodel.Workload(), kv_cache=q["cache"], tp=q["tp"])
        return float(record["memory"]["kv_bytes_per_token"])

    def _kv_bytes_per_token_beyond_window(self, q: Question) -> float:
        return kv_bytes_per_token(self._model(q), cache_format(q["cache"]), beyond_window=True)

    def _kv_cache_bytes(self, q: Question) -> float:
        layers = self._model(q).layers
        return float(cache_bytes(layers, q["context"], cache_format(q["cache"])))

    def _state_bytes_per_sequence(self, q: Question) -> float:
        return state_bytes(self._model(q).layers, STATE_BYTES[q["state"]])

    # FLOPs

    def _prefill_flops(self, q: Question) -> float | None:
        if q["mla"] != "expanded":
            return None
        return float(self._prefill(q, q["tokens"], q["cached"])["flops"])

    def _decode_flops(self, q: Question) -> float | None:
        if q["mla"] != "absorbed":
            return None
        return float(self._decode(q, q["cached"], q["batch"])["flops"])

    def _linear_flops_per_token(self, q: Question) -> float:
        return self._flops_of_one(q, lambda name: name not in {"attention", "lm_head"})

    def _ffn_flops_per_token(self, q: Question) -> float:
        return self._flops_of_one(q, lambda name: name.startswith("ffn."))

    def _flops_of_one(self, q: Question, chosen: Callable[[str], bool]) -> float:
        operators = self._prefill(q, 1)["operators"]
        return float(sum(o["flops"] for o in operators if chosen(o["name"])))

    def _lm_head_flops(self, q: Question) -> float:
        operators = self._prefill(q, q["tokens"], batch=q["batch"])["operators"]
        return float(sum(o["flops"] for o in operators if o["name"] == "lm_head"))

    def _gemm_flops(self, q: Question) -> float:
        return float(Gemm(name="gemm", m=q["m"], n=q["n"], k=q["k"]).flops)

    def _attention_flops(self, q: Question) -> float:
        keys = q["cached"] + q["new"]
        attention = Attention(
            name="attention",
            phase="prefill",
            sequences=1,
            queries=q["new"],
            keys=keys,
            pairs=causal_pairs(q["new"], q["cached"], q["window"]),
            context=keys,
            heads=q["heads"],
            kv_heads=q["heads"],
            qk_dim=q["qk_dim"],
            value_dim=q["v_dim"],
            key_bytes=0,
        )
        return float(attention.flops)

    def _causal_pairs(self, q: Question) -> float:
        if q["chunk"] is not None:
            return float(chunked_pairs(q["new"], q["cached"], q["chunk"]))
        return float(causal_pairs(q["new"], q["cached"], q["window"]))

    # Expectations

    def _expected_experts(self, q: Question) -> float:
        return float(expected_experts(q["experts"], q["top_k"], q["tokens"]))

    def _tokens_per_round(self, q: Question) -> float:
        drafted = q["draft_tokens"]
        return expected_tokens([q["acceptance"]] * drafted, [1] * drafted)

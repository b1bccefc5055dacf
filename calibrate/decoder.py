"""A Llama-like decoder with random weights in plain torch: real steps to check predictions on.

RMSNorm, rotary embedding by halves, grouped-query attention through SDPA over a preallocated
cache, SwiGLU, a tied or separate LM head that runs on the last token. Each step is what an engine
without graphs would launch, so its time holds the host's launch cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from calibrate.device import Device
from calibrate.runs.small import rotate
from calibrate.timing import Settings, Timing, measure
from perfmodel.errors import CapacityError, InputError

Phase = Literal["prefill", "decode"]
SETTINGS = Settings(budget_s=2.0, warmup_s=0.05, sample_s=1e-3)
EPSILON = 1e-5
MEMORY_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of a decoder, by the names of Hugging Face's ``config.json``."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    head_dim: int
    tie_word_embeddings: bool = False
    rope_theta: float = 10_000.0

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Config:
        """The sizes in a ``config.json``; keys that it doesn't need are ignored.

        Raises:
            InputError: a size is missing, or heads don't form whole groups.
        """
        try:
            heads = int(data["num_attention_heads"])
            made = cls(
                hidden_size=int(data["hidden_size"]),
                intermediate_size=int(data["intermediate_size"]),
                num_hidden_layers=int(data["num_hidden_layers"]),
                num_attention_heads=heads,
                num_key_value_heads=int(data.get("num_key_value_heads") or heads),
                vocab_size=int(data["vocab_size"]),
                head_dim=int(data.get("head_dim") or int(data["hidden_size"]) // heads),
                tie_word_embeddings=bool(data.get("tie_word_embeddings", False)),
                rope_theta=float(data.get("rope_theta") or 10_000.0),
            )
        except KeyError as error:
            raise InputError(f"a decoder's config lacks {error.args[0]}") from None
        if heads % made.num_key_value_heads:
            raise InputError(f"{heads} heads don't share {made.num_key_value_heads} KV heads")
        return made

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer, norms included."""
        attention = 2 * self.num_attention_heads + 2 * self.num_key_value_heads
        mixing = self.hidden_size * self.head_dim * attention
        return mixing + 3 * self.hidden_size * self.intermediate_size + 2 * self.hidden_size

    @property
    def parameters(self) -> int:
        """All weights; tied ones once."""
        tables = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        return self.num_hidden_layers * self.layer_parameters + tables + self.hidden_size


@dataclass(frozen=True, slots=True)
class StepRow:
    """A measured step of the whole model."""

    batch: int
    prompt: int
    """Tokens per sequence that the step computes in prefill; 0 for decode."""
    context: int
    """Tokens per sequence in the cache after the step."""
    phase: Phase
    seconds: float
    fastest_s: float
    spread: float
    samples: int
    reached: bool
    quality: str


class Decoder:
    """The model on a device, with a cache for ``batch`` sequences of ``context`` tokens."""

    def __init__(
        self, config: Config, device: Device, dtype: str, *, batch: int, context: int
    ) -> None:
        """Draw the weights.

        Raises:
            CapacityError: weights and cache don't fit.
        """
        import torch  # noqa: PLC0415

        self.config, self._torch = config, torch
        self._type, self._target = getattr(torch, dtype), device.target
        cache = (batch, config.num_key_value_heads, context, config.head_dim)
        cached = 2 * config.num_hidden_layers * batch * context * cache[1] * cache[3]
        needed = (config.parameters + cached) * self._type.itemsize
        if needed > MEMORY_SHARE * device.free_bytes():
            raise CapacityError(
                f"weights and cache need {needed:,} of {device.free_bytes():,} free bytes"
            )
        self._random = torch.Generator(device=device.target).manual_seed(0)
        self.embedding = self._weight(config.vocab_size, config.hidden_size)
        tied = config.tie_word_embeddings
        self.head = self.embedding if tied else self._weight(*self.embedding.shape)
        self.norm = self._weight(config.hidden_size) + 1
        self.layers = [self._layer() for _ in range(config.num_hidden_layers)]
        self.caches = [(self._weight(*cache), self._weight(*cache)) for _ in self.layers]
        self._angles = self._rotary(context)

    def _weight(self, *shape: int) -> Any:
        made = self._torch.randn(*shape, device=self._target, generator=self._random)
        return (0.02 * made).to(self._type)

    def _layer(self) -> dict[str, Any]:
        c = self.config
        queries, keys = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
        return {
            "qkv": self._weight(queries + 2 * keys, c.hidden_size),
            "out": self._weight(c.hidden_size, queries),
            "gate_up": self._weight(2 * c.intermediate_size, c.hidden_size),
            "down": self._weight(c.hidden_size, c.intermediate_size),
            "norm_1": self._weight(c.hidden_size) + 1,
            "norm_2": self._weight(c.hidden_size) + 1,
        }

    def _rotary(self, context: int) -> tuple[Any, Any]:
        torch, half = self._torch, self.config.head_dim // 2
        steps = torch.arange(half, device=self._target, dtype=torch.float32) / half
        positions = torch.arange(context, device=self._target, dtype=torch.float32)
        angles = torch.outer(positions, self.config.rope_theta**-steps)[:, None, :]
        return angles.cos().to(self._type), angles.sin().to(self._type)

    def step(self, tokens: Any, cached: int) -> Any:
        """Logits [batch, vocabulary] of the last of ``tokens`` [batch, new], after ``cached``."""
        x = self._torch.nn.functional.embedding(tokens, self.embedding)
        for layer, cache in zip(self.layers, self.caches, strict=True):
            x = x + self._attend(self._norm(x, layer["norm_1"]), layer, cache, cached)
            x = x + self._feed_forward(self._norm(x, layer["norm_2"]), layer)
        return self._norm(x[:, -1], self.norm) @ self.head.t()

    def _norm(self, x: Any, weight: Any) -> Any:
        return self._torch.nn.functional.rms_norm(x, weight.shape, weight, EPSILON)

    def _attend(self, x: Any, layer: dict[str, Any], cache: tuple[Any, Any], cached: int) -> Any:
        c, torch = self.config, self._torch
        batch, new, _ = x.shape
        heads, kv_heads = c.num_attention_heads, c.num_key_value_heads
        qkv = (x @ layer["qkv"].t()).view(batch, new, heads + 2 * kv_heads, c.head_dim)
        q, k, v = qkv.split((heads, kv_heads, kv_heads), dim=2)
        cosine, sine = (angle[cached : cached + new] for angle in self._angles)
        q, k = rotate(torch, q, cosine, sine), rotate(torch, k, cosine, sine)
        keys, values = cache
        keys[:batch, :, cached : cached + new] = k.transpose(1, 2)
        values[:batch, :, cached : cached + new] = v.transpose(1, 2)
        until = cached + new
        attended = torch.nn.functional.scaled_dot_product_attention(
            q.transpose(1, 2),
            keys[:batch, :, :until],
            values[:batch, :, :until],
            attn_mask=self._mask(new, until),
            is_causal=new > 1 and not cached,
            enable_gqa=heads != kv_heads,
        )
        return attended.transpose(1, 2).reshape(batch, new, -1) @ layer["out"].t()

    def _mask(self, new: int, until: int) -> Any:
        """None for a whole prompt or one token; a chunk after a prefix sees the keys so far."""
        if new in (1, until):
            return None
        from torch.nn.attention.bias import causal_lower_right  # noqa: PLC0415

        return causal_lower_right(new, until)

    def _feed_forward(self, x: Any, layer: dict[str, Any]) -> Any:
        gate, up = (x @ layer["gate_up"].t()).chunk(2, dim=-1)
        return (self._torch.nn.functional.silu(gate) * up) @ layer["down"].t()

    def tokens(self, batch: int, new: int) -> Any:
        """Random token numbers [batch, new]."""
        return self._torch.randint(
            self.config.vocab_size, (batch, new), device=self._target, generator=self._random
        )


def measure_steps(
    config: Config,
    device: Device,
    grid: Sequence[tuple[int, int]],
    phase: Phase,
    *,
    dtype: str = "bfloat16",
    settings: Settings = SETTINGS,
) -> Iterator[StepRow]:
    """Time one step at each (batch, tokens) of ``grid``, as they come.

    Args:
        config: sizes of the model.
        device: where it runs.
        grid: batch, and the prompt (prefill) or the context with the new token (decode).
        phase: which step.
        dtype: of weights, cache and activations.
        settings: tolerance and budget.

    Raises:
        CapacityError: the largest point of the grid doesn't fit.
    """
    import torch  # noqa: PLC0415

    batch_most = max(batch for batch, _ in grid)
    context_most = max(tokens for _, tokens in grid)
    with torch.inference_mode():
        decoder = Decoder(config, device, dtype, batch=batch_most, context=context_most)
        for batch, tokens in grid:
            timing = _time(decoder, device, batch, tokens, phase, settings)
            yield StepRow(
                batch=batch,
                prompt=tokens if phase == "prefill" else 0,
                context=tokens,
                phase=phase,
                seconds=timing.seconds,
                fastest_s=timing.fastest_s,
                spread=timing.spread,
                samples=timing.samples,
                reached=timing.reached,
                quality=timing.quality,
            )


def _time(
    decoder: Decoder, device: Device, batch: int, tokens: int, phase: Phase, settings: Settings
) -> Timing:
    new = tokens if phase == "prefill" else 1
    prompts = [decoder.tokens(batch, new) for _ in range(4)]
    timer = device.timer(
        lambda i: decoder.step(prompts[i % 4], tokens - new),
        host=device.kind == "cuda",
        graph=False,
        flush=False,
    )
    return measure(timer, settings)

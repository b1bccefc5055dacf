"""Which elementwise passes share a kernel: three levels, with the bytes and launches of each.

``engine`` is what serving engines' hand-written kernels do: a residual sum in the norm that
follows, an activation with the product of its gate, a recurrent layer's norm with its gate; rotary
embedding, the cache's write, norms of queries and keys, and quantisation run as kernels of their
own. ``none`` is a framework that runs one operation at a time; ``full`` a compiler that fuses every
pass with an elementwise neighbour (`torch.compile`, vLLM's fusion passes). In bytes per token, for
a row of d elements in 16 bits, q bytes per quantised element, widths w of the feed-forward part:

=========================  ====================  =================  ===============================
passes                     none                  engine             full
=========================  ====================  =================  ===============================
residual sum, norm         6d + 4d               8d                 8d
activation × gate          4w + 6w               6w                 6w, or 4w + q·w where quantised
gate of attention, norm    each 10 a pair        6                  6, or 4 + q
norm of q and k, rotary,   three kernels         three kernels      one kernel: q, k, v in; q and
cache write                                                         the cache's bytes out
quantisation of an input   2d + q·d              2d + q·d           q·d in the pass before it
=========================  ====================  =================  ===============================

A norm that is fused with a quantisation still writes its 16 bits, which a router, a residual or
another format may read. Nothing is fused into matrix products, attention, experts' own passes or
exchanges, whatever the level; FLOPs are the same.
"""

from __future__ import annotations

from typing import Literal

Fusion = Literal["none", "engine", "full"]
After = Literal["pass", "written", "kernel"]

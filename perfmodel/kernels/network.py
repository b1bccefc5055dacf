"""The two-level network: a fast link inside a node, a slower network between nodes.

An exchange that spans nodes is hierarchical, as libraries run it: an all-reduce is a
reduce-scatter inside each node, an all-reduce of each rank's share between the nodes, and an
all-gather inside. What crosses either wire adds up to the bytes of a flat ring, but only the
share of one GPU crosses the slow one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from perfmodel.errors import InputError
from perfmodel.kernels.kernel_time import KernelTime
from perfmodel.operators.collective import Collective, CollectiveKind
from perfmodel.operators.quantity import Quantity, maximum
from perfmodel.specs.hardware import Hardware

NODE_GPUS = 8
"""GPUs of one server, which reach each other over PCIe where no faster link joins them."""


@dataclass(frozen=True, slots=True)
class Network:
    """The ways between the GPUs of a deployment."""

    hardware: Hardware
    gpus_per_node: int | None = None
    """GPUs that reach each other without the network; None: as the profile's link says."""

    @property
    def node(self) -> int:
        """GPUs of a node: as stated, else the link's domain, else a server of `NODE_GPUS`."""
        domain = self.hardware.link_domain
        return self.gpus_per_node or (domain if domain > 1 else NODE_GPUS)

    def wire_rate(self, span: int) -> tuple[float, bool]:
        """Bytes/s per direction between ``span`` neighbouring GPUs; whether one node holds them.

        Over the link inside its domain, over PCIe inside a server, else over the network.

        Raises:
            InputError: the profile lacks the way that is needed.
        """
        hardware, node = self.hardware, self.gpus_per_node
        linked = hardware.link_domain if node is None else min(hardware.link_domain, node)
        if span <= linked:
            return hardware.link_bandwidth, True
        if span <= (node or NODE_GPUS):
            if hardware.pcie_bandwidth is None:
                raise InputError(
                    f"{hardware.name}: {span} GPUs need a way to each other, and the profile has "
                    "neither a link for so many nor pcie.gb_s_per_direction"
                )
            return hardware.pcie_bandwidth, True
        if hardware.network_bandwidth is None:
            raise InputError(
                f"{hardware.name}: {span} GPUs span several nodes, and the profile has no "
                "network.gb_s_per_gpu"
            )
        return hardware.network_bandwidth, False


def phases(operator: Collective, inside: int, node: int) -> list[Collective]:
    """The exchanges inside a node and between nodes that make up one over ``inside`` ranks each.

    With n = inside·nodes ranks and message M, on the wire of one GPU:

    * all-reduce: reduce-scatter of M inside, all-reduce of M/inside between, all-gather of M;
    * all-gather: of M/inside between the nodes, then of M inside; reduce-scatter the other way;
    * all-to-all: (inside − 1)/n of M to the own node, (n − inside)/n of M to the others, one after
      the other (both at once would be as fast as the slower one).
    """
    nodes = operator.ranks // inside
    reach = max(operator.span * inside // operator.ranks, inside)

    def within(kind: CollectiveKind, message: Quantity) -> Collective:
        span = min(reach, node)
        return replace(operator, kind=kind, message_bytes=message, ranks=inside, span=span)

    def across(kind: CollectiveKind, message: Quantity) -> Collective:
        return replace(
            operator, kind=kind, message_bytes=message, ranks=nodes, span=nodes * node, near=1
        )

    message = operator.message_bytes
    if operator.kind == "all_reduce":
        return [
            within("reduce_scatter", message),
            across("all_reduce", message / inside),
            within("all_gather", message),
        ]
    if operator.kind == "all_to_all":
        own = message / nodes
        return [within("all_to_all", own), across("all_to_all", message)]
    return [within(operator.kind, message), across(operator.kind, message / inside)]


def between_nodes(
    operator: Collective, network: Network, time_of: Callable[[Collective], KernelTime]
) -> KernelTime:
    """Seconds of an exchange that spans nodes: the sum of its phases.

    The roof is the slower wire alone, since pipelined phases overlap; one launch counts.
    ``time_of`` prices a phase, which lies inside a node or has one rank in each.
    """
    inside = operator.ranks_inside(network.node)
    parts = [time_of(part) for part in phases(operator, inside, network.node)]
    nodes = parts[1]
    rest = parts[:1] + parts[2:]
    extra = sum(part.launch_s for part in rest)
    roof = maximum(nodes.roof_s, sum(part.roof_s for part in rest))
    time = maximum(sum(part.time_s for part in parts) - extra, roof)
    low = maximum(sum(part.low_s for part in parts) - extra, roof)
    return replace(
        nodes,
        time_s=time,
        low_s=low,
        high_s=maximum(sum(part.high_s for part in parts) - extra, time),
        memory_s=sum(part.memory_s for part in parts),
        network_s=sum(part.network_s for part in parts),
        roof_s=roof,
        latency_s=None,
    )


def mixed(inside: KernelTime, between: KernelTime, share: float) -> KernelTime:
    """A hand-over whose ``share`` goes between nodes: the mean of both."""
    numbers = {
        f.name: (1 - share) * getattr(inside, f.name) + share * getattr(between, f.name)
        for f in fields(KernelTime)
        if f.name not in {"source", "latency_s"}
    }
    return KernelTime(source=between.source, **numbers)

"""Memory below the device's: the host's, or a disk's."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.errors import InputError


@dataclass(frozen=True, slots=True)
class Tier:
    """Memory that blocks can be moved to."""

    capacity_blocks: float
    bytes_per_s: float
    """Each way; a transfer isn't overlapped with the step that waits for it."""

    def __post_init__(self) -> None:
        """Check.

        Raises:
            InputError: no block fits, or nothing ever arrives.
        """
        if not (self.capacity_blocks >= 1 and self.bytes_per_s > 0):
            raise InputError(
                f"a tier of {self.capacity_blocks:g} blocks at {self.bytes_per_s:g} bytes/s: "
                "give it at least one block and a rate above zero"
            )

    def seconds(self, nbytes: float) -> float:
        """Time to move ``nbytes`` one way."""
        return nbytes / self.bytes_per_s

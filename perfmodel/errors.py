"""The errors that a user can mend; everything else is a bug and keeps its traceback."""

from __future__ import annotations


class PerfmodelError(Exception):
    """Base of every error that perfmodel raises on purpose.

    Its text is one line that names what is wrong, where, and what would mend it. The command
    line prints that line and exits with status 2.
    """


class InputError(PerfmodelError):
    """What the user described is wrong: a file, a field, a value or a combination of them."""


class UnknownNameError(InputError):
    """A name that isn't in the catalogue, the hardware folder or a list of formats."""


class CapacityError(InputError):
    """A workload that the described GPUs can't hold."""

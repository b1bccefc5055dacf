"""Run the command line inside the test process."""

import contextlib
import io
import json
from dataclasses import dataclass

from perfmodel.cli.main import run


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str

    @property
    def record(self):
        return json.loads(self.out)


def perfmodel(*arguments):
    """Exit status and output of one command line; tracebacks come through as exceptions."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run([str(a) for a in arguments])
    return Ran(status, out.getvalue(), err.getvalue())

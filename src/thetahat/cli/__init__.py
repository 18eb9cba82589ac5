"""The command line: one verb per stage, one small file per verb.

Importing this costs nothing; `main` loads typer, and each verb loads what it needs when it runs.
"""

from __future__ import annotations

import os
import sys

# Who sets one of these decides; read once, when NumPy and SciPy are loaded.
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def main() -> None:
    """Run `thetahat` with the process's arguments and exit with the code of interface: 0 done, 2
    usage, 3 … 7.
    """
    if "numpy" not in sys.modules and not any(name in os.environ for name in BLAS_THREADS):
        # Matrices here have some hundred columns: more threads of BLAS wait for each other, and
        # take the cores from the project's own (default `identify`: 5.0 s of processor time
        # with two, 3.4 s with one).
        os.environ.update(dict.fromkeys(BLAS_THREADS, "1"))
    from thetahat.cli.exit_status import guarded

    with guarded():
        from thetahat.cli.app import program

        program()(prog_name="thetahat")

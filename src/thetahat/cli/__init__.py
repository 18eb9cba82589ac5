"""The command line: one verb per stage, one small file per verb.

Importing this costs nothing; `main` loads typer, and each verb loads what it needs when it runs.
"""

from __future__ import annotations


def main() -> None:
    """Run `thetahat` with the process's arguments and exit with the code of interface: 0 done, 2
    usage, 3 … 7.
    """
    from thetahat.cli.exit_status import guarded

    with guarded():
        from thetahat.cli.app import program

        program()(prog_name="thetahat")

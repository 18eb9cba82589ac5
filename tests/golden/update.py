"""Rewrite the golden numbers and print what changed: `python -m tests.golden.update [names]`.

Names are those of the files below tests/golden/numbers, or their beginnings: `real`, `real/ur10`.
Without a name all are computed, which takes some minutes.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

SUPPORT = Path(__file__).resolve().parents[1] / "support"


def main(names: list[str]) -> int:
    """Compute the cases whose names begin so; 2 where a name is unknown, 1 where a case failed."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in tests/conftest.py
    sys.path.insert(0, str(SUPPORT))
    import golden_numbers
    import pytest
    from golden_cases import CASES

    unknown = [name for name in names if not any(case.startswith(name) for case in CASES)]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; there are: {', '.join(CASES)}", file=sys.stderr)
        return 2
    code = 0
    for name, case in CASES.items():
        if names and not any(name.startswith(each) for each in names):
            continue
        began = time.monotonic()
        try:
            numbers = golden_numbers.rounded(case.numbers())
        except pytest.skip.Exception as reason:
            print(f"{name}: skipped, {reason}")
            continue
        except (RuntimeError, ValueError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            code = 1
            continue
        kept = golden_numbers.load(name)
        lines = ["new"]
        if kept is not None:
            allowed = golden_numbers.tolerance(kept)
            lines = list(golden_numbers.differences(kept["numbers"], numbers, allowed))
        seconds = time.monotonic() - began
        print(f"{name}: {len(lines) or 'nothing'} changed ({seconds:.0f} s)", *lines, sep="\n")
        if lines:  # numbers that agree stay as they are, and so does the diff
            golden_numbers.save(name, numbers)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""All benchmarks, one after the other, or those named: `python -m benchmarks identification sysid`;
exit code 1 if what is allowed was exceeded.
"""

from __future__ import annotations

import sys

from benchmarks import (
    control,
    design,
    dynamics,
    estimators,
    growth,
    identification,
    live,
    online,
    ratios,
    reading,
    selection,
    start_up,
    sysid,
)

MODULES = (
    start_up,
    dynamics,
    growth,
    identification,
    estimators,
    reading,
    selection,
    design,
    sysid,
    control,
    online,
    live,
    ratios,
)
PARTS = {part.__name__.rpartition(".")[2]: part for part in MODULES}


def main() -> None:
    names = sys.argv[1:] or list(PARTS)
    for name in names:
        if name not in PARTS:
            raise SystemExit(f"benchmark {name!r} is unknown; benchmarks: {', '.join(PARTS)}")
    missed = [
        sentence for name in names for sentence in PARTS[name].main() or ()
    ]  # those without a bound say nothing
    if missed:
        raise SystemExit(f"missed: {'; '.join(missed)}")


if __name__ == "__main__":
    main()

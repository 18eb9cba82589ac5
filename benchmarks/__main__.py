"""All benchmarks, one after the other."""

from __future__ import annotations

from benchmarks import dynamics, growth, start_up


def main() -> None:
    for part in (start_up, dynamics, growth):
        part.main()


if __name__ == "__main__":
    main()

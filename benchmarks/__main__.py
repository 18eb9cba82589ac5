"""All benchmarks, one after the other."""

from __future__ import annotations

from benchmarks import dynamics, growth, identification, reading, selection, start_up


def main() -> None:
    for part in (start_up, dynamics, growth, identification, reading, selection):
        part.main()


if __name__ == "__main__":
    main()

"""Let pyright read every Python snippet of README and docs: `python tools/check_snippets.py`.

The snippets of a page are read as one program, since later ones use the names of earlier ones.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "snippets"
SNIPPET = re.compile(r"^```python\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
LIMIT = 300.0  # [s]


def write_snippets() -> int:
    """Write a program per page, lines where they stand on the page; return how many there are."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.py"):
        old.unlink()
    count = 0
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = page.read_text(encoding="utf-8")
        lines = [""] * (text.count("\n") + 1)
        for match in SNIPPET.finditer(text):
            first = text.count("\n", 0, match.start(1))
            code = match[1].splitlines()
            lines[first : first + len(code)] = code
            count += 1
        if any(lines):
            name = page.relative_to(ROOT).with_suffix("").as_posix().replace("/", "__")
            (FOLDER / f"{name}.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return count


def main() -> int:
    """Check all snippets; the exit code is pyright's."""
    count = write_snippets()
    (FOLDER / "pyrightconfig.json").write_text(
        '{"typeCheckingMode": "standard", "reportMissingImports": true}\n', encoding="utf-8"
    )
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
    print(f"pyright reads {count} snippets", flush=True)
    return subprocess.run([*command, "--project", str(FOLDER)], timeout=LIMIT).returncode


if __name__ == "__main__":
    sys.exit(main())

"""Text that can be sent and written: names come from frames and from files, and not all of what
Python holds as text has a UTF-8 form.
"""

from __future__ import annotations

import re

UNPAIRED = re.compile(
    "[\ud800-\udfff]"
)  # half of a UTF-16 pair, or a byte of a file's name that is not UTF-8
UNKNOWN = "\ufffd"


def encodable(text: str) -> str:
    """The text, with U+FFFD for every letter that UTF-8 cannot hold."""
    return text if text.isascii() else UNPAIRED.sub(UNKNOWN, text)

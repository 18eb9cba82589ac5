"""The robot of fastdds_peer.cpp: built once for each text of it, and run as long as a test asks."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

import pytest

SOURCE = Path(__file__).with_name("fastdds_peer.cpp")
HEADER = Path("/usr/include/fastdds/dds/domain/DomainParticipant.hpp")
BUILD = Path(__file__).parents[2] / "build"
STATES, COMMANDS = "/thetahat_fastdds/joint_states", "/thetahat_fastdds/commands"
SECONDS = 60.0  # after which it ends by itself


def built() -> Path:
    """The program; skips the test where it cannot be built."""
    if not HEADER.exists() or shutil.which("g++") is None:
        pytest.skip("Fast DDS is not installed: apt-get install libfastrtps-dev g++")
    text = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    program = BUILD / f"fastdds_peer-{text}"
    if not program.exists():
        BUILD.mkdir(exist_ok=True)
        made = BUILD / f".{program.name}.{os.getpid()}"
        command = ["g++", "-std=c++17", "-O1", "-o", str(made), str(SOURCE)]
        libraries = ["-lfastrtps", "-lfastcdr", "-pthread"]
        done = subprocess.run(
            [*command, *libraries], capture_output=True, text=True, timeout=150, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        made.replace(program)
    return program


class FastPeer:
    """The running robot: `with FastPeer(7, "effort", joints):`."""

    def __init__(self, domain: int, kind: str, joints: list[str], *, rate: float = 200.0) -> None:
        numbers = [str(domain), kind, str(rate), str(SECONDS)]
        topics = [f"rt{STATES}", f"rt{COMMANDS}"]
        self._command = [str(built()), *numbers, *topics, *joints]

    def __enter__(self) -> FastPeer:
        self._process = subprocess.Popen(self._command)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait(30.0)

"""No wait without an end: each call that waits for another process, thread, socket or lock states a
limit, or is listed here with what limits it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "thetahat"
# position of the argument that is a limit, where it is given without its name
LIMITS = {
    "wait": 0,
    "join": 0,
    "result": 0,
    "exception": 0,
    "get": 1,
    "acquire": 1,
    "poll": 0,
    "communicate": 1,
    "wait_for": 1,
    "urlopen": 2,
    "create_connection": 1,
}
ONLY_BARE = {
    "join",
    "result",
    "get",
    "exception",
    "poll",
}  # others of these names are texts' and maps'
PROCESSES = {"run", "call", "check_call", "check_output"}
SOCKETS = {"recv", "recv_into", "recvfrom", "recv_bytes", "accept"}
POOLS = {"pool", "_pool", "executor", "_executor"}
# what has no limit of its own, by module and text, with what limits it
LISTED = {
    ("connect.sim_process", "self._pipe.recv()"): "after poll(STARTING)",
    ("live.server", "websocket.accept()"): "the server closes connections that do not shake hands",
}
NOT_WAITING = {  # methods of our own, and context variables
    ("files", "_STAGED.get()"),
    *(
        ("model.io.mjcf_write", f"self.edits[{key}].result()")
        for key in ("self.document.path", "place")
    ),
    ("model.io.urdf_write", "edit.result()"),
    *((f"pipeline.{name}", "counter.result()") for name in ("validate",)),
    ("engine.local", "counter.result()"),
    ("engine.shard_work", "counter.result()"),
    ("pipeline.identify", "collector.result()"),
    ("studies.arm", "collector.result()"),
    ("studies.leg", "collector.result()"),
    ("studies.double_pendulum", "collector.result()"),
    ("studies.study", "recorder.result()"),
    ("live.downloads", "collector.result()"),
    ("cli.watch", "run.result()"),
    ("connect.control_run", "self.result()"),
}


def unlimited(module: str, source: str) -> Iterator[str]:
    """Yield the calls of a module that may wait for ever."""
    tree = ast.parse(source)
    awaited = {
        id(inner)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("wait_for")
        for inner in call.args[:1]
    }
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or id(call) in awaited:
            continue
        text = ast.unparse(call)
        if (module, text) in LISTED or (module, text) in NOT_WAITING:
            continue
        if not _is_limited(call, text, "settimeout(" in source or "setblocking(False)" in source):
            yield f"{module}, line {call.lineno}: {text[:80]}"


def _is_limited(call: ast.Call, text: str, has_timeout: bool) -> bool:
    """Whether a call ends by itself. has_timeout: the module's sockets do."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    named = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    stated = named.get("timeout") not in (None, "None")
    if name == "flock" or name == "lockf":
        return "LOCK_NB" in text or "LOCK_UN" in text
    if owner == "select" and name == "select":
        return len(call.args) == 4
    if owner == "subprocess" and name in PROCESSES:
        return stated
    if name in SOCKETS:
        return has_timeout or (name == "accept" and bool(call.args))  # not a socket's
    if name in ("map", "as_completed") and owner.rpartition(".")[2] in {*POOLS, "futures"}:
        return stated
    if name == "shutdown" and owner.rpartition(".")[2] in POOLS:
        return named.get("wait") == "False"
    if name == "acquire" and named.get("blocking") == "False":
        return True
    if name in ONLY_BARE and call.args:
        return ast.unparse(call.args[0]) != "None"
    if name in ONLY_BARE and call.keywords:
        return stated
    if name in LIMITS:
        at = LIMITS[name]
        return stated or (len(call.args) > at and ast.unparse(call.args[at]) != "None")
    return True


def modules() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if not name.startswith("kernels.") or name == "kernels.kernel_cache":
            yield name, path.read_text(encoding="utf-8")


def test_every_wait_has_a_limit() -> None:
    endless = [each for name, source in modules() for each in unlimited(name, source)]
    assert not endless, "\n".join(endless)


def test_what_is_listed_is_there() -> None:
    sources = dict(modules())
    for module, text in {*LISTED, *NOT_WAITING}:
        calls = {
            ast.unparse(n) for n in ast.walk(ast.parse(sources[module])) if isinstance(n, ast.Call)
        }
        assert text in calls, f"{module} has no {text} any more: take it off the list"


@pytest.mark.parametrize(
    "text",
    [
        "event.wait()",
        "event.wait(None)",
        "thread.join()",
        "future.result()",
        "future.result(timeout=None)",
        "queue.get()",
        "lock.acquire()",
        "pipe.recv()",
        "sock.accept()",
        "select.select([a], [], [])",
        "subprocess.run(command)",
        "process.communicate()",
        "fcntl.flock(file, fcntl.LOCK_EX)",
        "pool.map(f, work)",
        "pool.shutdown()",
        "asyncio.wait_for(event.wait(), None)",
    ],
)
def test_an_endless_wait_is_noticed(text: str) -> None:
    assert list(unlimited("made.up", text))


@pytest.mark.parametrize(
    "text",
    [
        "event.wait(0.5)",
        "thread.join(timeout=3.0)",
        "future.result(LONGEST)",
        "lock.acquire(blocking=False)",
        "sock.settimeout(1.0)\nsock.recv(4)",
        "select.select([a], [], [], 0.0)",
        "subprocess.run(command, timeout=5)",
        "asyncio.wait_for(event.wait(), 2.0)",
        "', '.join(names)",
        "mapping.get(key)",
    ],
)
def test_a_limited_wait_is_let_pass(text: str) -> None:
    assert not list(unlimited("made.up", text))

"""A controller of Universal Robots on loopback, as the public description of RTDE has it: it runs
the very text of the program that it is sent, in the place of a robot that follows `servoj`.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np

RTDE_TYPES = {  # of the guide's tables, as far as they are used here
    "timestamp": ">d",
    "actual_q": ">6d",
    "actual_qd": ">6d",
    "actual_current": ">6d",
    "actual_current_as_torque": ">6d",
    "target_q": ">6d",
    "joint_temperatures": ">6d",
    "robot_mode": ">i",
    "safety_mode": ">i",
    "runtime_state": ">I",
    "output_int_register_24": ">i",
    "input_int_register_24": ">i",
} | {f"input_double_register_{k}": ">d" for k in range(24, 30)}
WORDS = {">d": "DOUBLE", ">6d": "VECTOR6D", ">i": "INT32", ">I": "UINT32"}
STEP = 0.004  # [s] of this controller


class Ended(Exception):
    pass


class FakeUr:
    """`with FakeUr() as robot`: ports, state, and what was asked of it.

    kind: "" or how it misbehaves. without: variables that this controller does not have.
    """

    def __init__(self, kind: str = "", *, without: tuple[str, ...] = (), rtde: int = 0) -> None:
        self.kind, self.without = kind, without
        self.q, self.dq = 0.1 * np.arange(6), np.zeros(6)
        self.tau, self.current = np.arange(6) + 0.5, np.arange(6) * 0.25
        self.integers, self.doubles = {24: 0}, dict.fromkeys(range(24, 30), 0.0)
        self.out, self.runtime, self.safety = 0, 1, 1
        self.programs: list[str] = []
        self.lowest_wait = 0.0
        self.moved: list[np.ndarray] = []
        self.over = threading.Event()
        self.rtde, self.script = socket.create_server(("127.0.0.1", rtde)), self._listener()
        self.port, self.program_port = (s.getsockname()[1] for s in (self.rtde, self.script))
        self._threads = [
            threading.Thread(target=self._serve, args=(sock, talk), daemon=True)
            for sock, talk in ((self.rtde, self._talk), (self.script, self._take_program))
        ]

    @staticmethod
    def _listener() -> socket.socket:
        return socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> FakeUr:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        for sock in (self.rtde, self.script):
            sock.close()
        for thread in self._threads:
            thread.join(5.0)

    def _serve(self, listener: socket.socket, talk: Any) -> None:
        with suppress(OSError):
            listener.settimeout(0.05)
        while not self.over.is_set():
            with suppress(TimeoutError, OSError, Ended):
                client, _ = listener.accept()
                with client:
                    client.settimeout(STEP)
                    talk(client)

    # -- RTDE --------------------------------------------------------------------------------------

    def _talk(self, client: socket.socket) -> None:
        data, outputs, inputs, started = b"", [], [], False
        due, began = time.monotonic(), time.monotonic()
        while not self.over.is_set():
            with suppress(TimeoutError):
                got = client.recv(4096)
                if not got:
                    return
                data += got
            while len(data) >= 3 and len(data) >= struct.unpack(">H", data[:2])[0]:
                size = struct.unpack(">H", data[:2])[0]
                kind, payload, data = chr(data[2]), data[3:size], data[size:]
                if kind == "O":
                    outputs = self._names(payload[8:])
                elif kind == "I":
                    inputs = self._names(payload)
                elif kind == "U":
                    self._set(inputs, payload)
                    continue
                started = {"S": True, "P": False}.get(kind, started)
                self._answer(client, kind, payload)
            if started and time.monotonic() >= due:
                due = time.monotonic() + STEP
                self._sample(client, outputs, time.monotonic() - began)

    def _answer(self, client: socket.socket, kind: str, payload: bytes) -> None:
        send = lambda data: client.sendall(struct.pack(">HB", 3 + len(data), ord(kind)) + data)  # noqa: E731
        match kind:
            case "V":
                if self.kind == "garbage":
                    client.sendall(np.random.default_rng(7).bytes(3000))
                elif self.kind == "web page":
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                elif self.kind != "silent":
                    send(bytes([self.kind != "old"]))
            case "v":
                send(struct.pack(">4I", 5, 23, 0, 1))
            case "O" | "I":
                names = self._names(payload[8:] if kind == "O" else payload)
                words = [self._word(name) for name in names]
                if self.kind == "fewer":
                    words = words[:-1]
                text = ",".join(words).encode()
                send(b"\x01" + (b"\xff\xfe" if self.kind == "no text" else text))
            case "S" | "P":
                send(b"\x01")
                if self.kind == "message":  # as controllers send them, between packets
                    text = b"\x05hello\x04here\x01"
                    client.sendall(struct.pack(">HB", 3 + len(text), ord("M")) + text)

    @staticmethod
    def _names(payload: bytes) -> list[str]:
        return [name for name in payload.decode().split(",") if name]  # some clients end by a comma

    def _word(self, name: str) -> str:
        if name in self.without or name not in RTDE_TYPES:
            return "NOT_FOUND"
        if self.kind == "in use" and name.startswith("input"):
            return "IN_USE"
        return "VECTOR3D" if self.kind == "other types" else WORDS[RTDE_TYPES[name]]

    def _set(self, names: list[str], payload: bytes) -> None:
        values = struct.unpack(">" + "".join(RTDE_TYPES[n][1:] for n in names), payload[1:])
        for name, value in zip(names, values, strict=True):
            registers = self.integers if "_int_" in name else self.doubles
            registers[int(name.rpartition("_")[2])] = value

    def _sample(self, client: socket.socket, names: list[str], t: float) -> None:
        q, late = self.q, t > 0.5
        if late and self.kind == "not a number":
            q = np.full(6, np.nan)
        values = {
            "timestamp": 1.0 if late and self.kind == "stuck clock" else 100.0 + t,
            "actual_q": q,
            "actual_qd": self.dq,
            "actual_current": self.current,
            "actual_current_as_torque": self.tau,
            "target_q": q,
            "joint_temperatures": np.full(6, 31.0),
            "robot_mode": 7,
            "safety_mode": self.safety,
            "runtime_state": self.runtime,
            "output_int_register_24": self.out,
        }
        body = b"".join(struct.pack(RTDE_TYPES[n], *np.atleast_1d(values[n])) for n in names)
        data = struct.pack(">HBB", 4 + len(body), ord("U"), 1) + body
        if late and self.kind == "half packets":
            client.sendall(data[: len(data) // 2])
            raise Ended
        if late and self.kind == "huge":
            data = struct.pack(">HBB", 65535, ord("U"), 1) + body * 100
        if late and self.kind == "other recipe":
            data = data[:3] + b"\x09" + data[4:]
        if late and self.kind == "hangs":
            return
        with suppress(TimeoutError):
            client.sendall(data)
        if self.kind == "trickles":
            time.sleep(STEP)

    # -- the program -------------------------------------------------------------------------------

    def _take_program(self, client: socket.socket) -> None:
        text = b""
        until = time.monotonic() + 2.0
        while not text.rstrip().endswith(b"\nend") and time.monotonic() < until:
            with suppress(TimeoutError):
                got = client.recv(4096)
                if not got:
                    break
                text += got
        self.programs.append(text.decode())
        if self.kind != "local control":
            threading.Thread(target=self._run, args=(self.programs[-1],), daemon=True).start()

    def _run(self, text: str) -> None:
        """Run URScript, which differs from Python by its `end`s, for what is used here."""
        lines = [line for line in text.splitlines() if line.strip() != "end"]
        scope: dict[str, Any] = {
            "get_steptime": lambda: STEP,
            "read_input_integer_register": lambda k: self.integers[k],
            "read_input_float_register": lambda k: self.doubles[k],
            "write_output_integer_register": self._write,
            "servoj": self._servoj,
            "sync": self._sync,
            "stopj": lambda a: self.dq.fill(0.0),
        }
        exec("\n".join(lines), scope)
        self.runtime = 2
        with suppress(Ended):
            next(v for k, v in scope.items() if k.startswith("thetahat"))()
        self.runtime = 1

    def _write(self, register: int, value: int) -> None:
        assert register == 24
        self.out = value

    def _sync(self) -> None:
        if self.over.is_set():
            raise Ended
        time.sleep(STEP)

    def _servoj(self, q: list[float], a: float, v: float, t: float, ahead: float, gain: float):
        assert t == STEP
        assert 0.03 <= ahead <= 0.2, "URScript's range"
        assert 100 <= gain <= 2000, "URScript's range"
        self.moved.append(np.array(q))
        self.q = np.array(q)
        self._sync()

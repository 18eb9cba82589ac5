"""Reading a log: megabytes per second of `read_log` (parsed, checked, hashed, audited), of a second
pass, and of bare polars.

`python -m benchmarks.reading ROWS` takes another length; peak memory is that of a process of its
own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROWS = 1_000_000
MCAP_MEGABYTES = 100
READ = """
import sys, time, threading
import thetahat as th
from thetahat import robots
from thetahat.data.log import read_log
robot = th.load(robots.path("arm7"))
th.inverse_dynamics(robot, *[robot.neutral] * 3), th.gravity(robot, robot.neutral)  # compiled before the clock runs
import polars, scipy.optimize
def now():
    with open("/proc/self/statm") as f: return int(f.read().split()[1]) * 4096
peak, base = 0, now()
def watch():
    global peak
    while True:
        peak = max(peak, now())
        time.sleep(0.002)
threading.Thread(target=watch, daemon=True).start()
t = time.perf_counter()
log = read_log(sys.argv[1], robot)
first = time.perf_counter() - t
t = time.perf_counter()
rows = sum(len(chunk) for chunk in log.chunks())
print(first, time.perf_counter() - t, (peak - base) / 1e6, rows)
"""


def write(folder: Path, rows: int) -> dict[str, Path]:
    """The same log as CSV, Parquet and NPZ: t, then q, dq and tau of six joints, a piece at
    a time.
    """
    import polars

    rng = np.random.default_rng(0)
    names = ["t"] + [f"{kind}{j}" for kind in ("q", "dq", "tau") for j in range(1, 7)]
    frequency, phase = rng.uniform(0.5, 2.0, 6), rng.uniform(0, 6.28, 6)
    paths = {kind: folder / f"log.{kind}" for kind in ("csv", "parquet")}
    with paths["csv"].open("wb") as file:
        for start in range(0, rows, 250_000):
            t = np.arange(start, min(start + 250_000, rows))[:, None] * 1e-3
            angle = 2 * np.pi * frequency * t + phase
            values = np.hstack(
                [
                    t,
                    np.sin(angle),
                    2 * np.pi * frequency * np.cos(angle),
                    5 * np.cos(angle) + rng.normal(size=angle.shape) * 0.05,
                ]
            )
            polars.DataFrame(values, schema=names).write_csv(file, include_header=start == 0)
    polars.scan_csv(paths["csv"]).sink_parquet(paths["parquet"])
    return paths


def write_mcap(path: Path, megabytes: int = MCAP_MEGABYTES) -> None:
    """Write JointState messages of seven joints by the reference writer, with its checksums."""
    from mcap.writer import CompressionType, Writer
    from rosbags.typesys import Stores, get_typestore

    store, kind = get_typestore(Stores.ROS2_HUMBLE), "sensor_msgs/msg/JointState"
    stamp, header = (
        store.types[name] for name in ("builtin_interfaces/msg/Time", "std_msgs/msg/Header")
    )
    names, rng = [f"joint{j}" for j in range(1, 8)], np.random.default_rng(0)
    with path.open("wb") as file:
        writer = Writer(file, compression=CompressionType.NONE)
        writer.start("ros2", "benchmark")
        schema = writer.register_schema(kind, "ros2msg", b"std_msgs/Header header")
        channel = writer.register_channel("/joint_states", "cdr", schema)
        number = 0
        while file.tell() < megabytes * 1e6:
            nanoseconds = 10**18 + number * 10**6
            head = header(stamp(nanoseconds // 10**9, nanoseconds % 10**9), "base")
            message = store.types[kind](head, names, *rng.normal(size=(3, 7)))
            raw = bytes(store.serialize_cdr(message, kind))
            writer.add_message(channel, nanoseconds, raw, nanoseconds)
            number += 1
        writer.finish()


def mcap_readers(path: Path) -> None:
    """Compare thetahat's MCAP reader with the stream reader of the package mcap."""
    from mcap.records import Message
    from mcap.stream_reader import StreamReader

    from thetahat.data.formats.mcap import McapFile

    def ours() -> int:
        return sum(len(data) for _, _, data in McapFile(path).messages())

    def theirs() -> int:
        with path.open("rb") as file:
            records = StreamReader(file, validate_crcs=True).records
            return sum(len(record.data) for record in records if isinstance(record, Message))

    size, best = path.stat().st_size / 1e6, {"thetahat": np.inf, "mcap": np.inf}
    for _ in range(3):
        for name, read in (("thetahat", ours), ("mcap", theirs)):
            t = time.perf_counter()
            read()
            best[name] = min(best[name], time.perf_counter() - t)
    print(
        f"   mcap     {size:7.1f} MB: messages by thetahat {size / best['thetahat']:6.0f} MB/s, by"
        f" the package mcap with validate_crcs {size / best['mcap']:6.0f} MB/s"
    )


def main(rows: int = ROWS) -> None:
    import polars

    with tempfile.TemporaryDirectory() as folder:
        paths = write(Path(folder), rows)
        print(f"\nreading a log of {rows} rows and 19 columns (CSV may not fall below 200 MB/s)")
        for kind, path in paths.items():
            size = path.stat().st_size / 1e6
            results = [
                subprocess.run(
                    [sys.executable, "-c", READ, str(path)],
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout.split()
                for _ in range(3)
            ]
            first, second = (min(float(result[i]) for result in results) for i in range(2))
            peak = max(float(result[2]) for result in results)
            t = time.perf_counter()
            (polars.read_csv if kind == "csv" else polars.read_parquet)(path)
            bare = time.perf_counter() - t
            print(
                f"   {kind:8s} {size:7.1f} MB: read_log {size / first:6.0f} MB/s, chunks"
                f" {size / second:6.0f} MB/s, bare polars {size / bare:6.0f} MB/s; peak memory"
                f" {peak:.0f} MB above start"
            )
        write_mcap(Path(folder) / "log.mcap")
        mcap_readers(Path(folder) / "log.mcap")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)

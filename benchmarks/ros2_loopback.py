"""ROS 2 joint states over DDS on loopback: how many arrive, how late, and whether memory grows.

    python -m benchmarks.ros2_loopback                       # 60 s at 1 kHz, 44 joints
    python -m benchmarks.ros2_loopback --seconds 10 --joints 7

One process publishes sensor_msgs/JointState, stamped when it is written; another reads them with
`Ros2Connection`'s reader and decoder, every message, and compares the stamp with its own clock.
Both are Python. Asked: 99.9 % received, 99 % within 10 ms, on an idle machine of two cores: the load
is printed beside it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time

import numpy as np

DOMAIN, TOPIC = 91, "/thetahat_bench/joint_states"
SETTLE = 3.0  # [s] for discovery, before messages count


def publish(joints: int, rate: float, seconds: float) -> None:
    from thetahat.connect import ros2_messages as messages
    from thetahat.connect.ros2 import Domain

    domain = Domain(DOMAIN, loopback=True)
    writer = domain.writer(TOPIC, messages.JointState)
    names = [f"joint_{k}" for k in range(joints)]
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, joints)).tolist()
    due = time.monotonic()
    for k in range(round((seconds + SETTLE) * rate)):
        now = time.time_ns()
        stamp = messages.Time(now // 10**9, now % 10**9)
        writer.write(messages.JointState(messages.Header(stamp, str(k)), names, *values))
        due += 1.0 / rate
        time.sleep(max(0.0, due - time.monotonic()))
    time.sleep(1.0)


def resident() -> float:
    """[MB] of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--joints", type=int, default=44)
    options = parser.parse_args()
    from thetahat.connect import ros2_messages as messages
    from thetahat.connect.ros2 import Domain

    domain = Domain(DOMAIN, loopback=True)
    reader = domain.reader(TOPIC, messages.JointState, 1000)
    node = multiprocessing.get_context("spawn").Process(
        target=publish, args=(options.joints, options.rate, options.seconds), daemon=True
    )
    node.start()
    first, last = round(SETTLE * options.rate), round((SETTLE + options.seconds) * options.rate)
    asked, count = last - first, 0
    late, memory = np.zeros(asked), []  # all of its room from the first on
    load = os.getloadavg()[0]
    until = time.monotonic() + options.seconds + 120.0
    seen = -1
    while time.monotonic() < until and seen < last - 1 and (node.is_alive() or seen < 0):
        for message in reader.take(N=100):
            now = time.time_ns()
            seen = int(message.header.frame_id)
            if first <= seen < last:
                stamp = message.header.stamp
                late[count] = (now - stamp.sec * 10**9 - stamp.nanosec) * 1e-6
                count += 1
                if count % 5000 == 1:
                    memory.append(resident())
        time.sleep(2e-4)
    node.kill()
    node.join(10.0)
    p50, p99, most = np.percentile(late[:count], [50, 99, 100])
    print(
        f"{count:,} of {asked:,} messages ({100 * count / asked:.2f} %) of {options.joints}"
        f" joints at {options.rate:g} Hz; latency [ms] median {p50:.2f}, 99 % {p99:.2f}, most"
        f" {most:.1f}; memory [MB] {memory[0]:.1f} → {memory[-1]:.1f}; load {load:.1f} →"
        f" {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )


if __name__ == "__main__":
    main()

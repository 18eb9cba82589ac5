"""ROS 2 over DDS: the same bytes as another serialiser's, and a robot behind topics on loopback."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cyclonedds", reason="the extra 'ros2' is not installed: no wheel here")

from ros2_node import COMMANDS, TOPIC, Node, domain_number

from thetahat.connect import ros2_messages as messages
from thetahat.connect.connection_kit import check_connection, newest
from thetahat.connect.ros2 import Ros2Address, Ros2Connection, ros_domain, wire_name
from thetahat.errors import RefusedForSafety, UsageError

MESSAGES = 1000  # of every type
JOINTS = ["shoulder", "elbow", "wrist"]
INTERFACES = {  # that the other serialiser lacks, from their public definitions
    "control_msgs/msg/InterfaceValue": "string[] interface_names\nfloat64[] values\n",
    "control_msgs/msg/DynamicJointState": (
        "std_msgs/Header header\nstring[] joint_names\nInterfaceValue[] interface_values\n"
    ),
}


def random_value(kind: str, rng: np.random.Generator) -> Any:
    """A random message as nested lists, numbers and texts, by our own type's name."""
    text = lambda: "".join(map(chr, rng.integers(97, 123, rng.integers(0, 12))))  # noqa: E731
    texts = lambda: [text() for _ in range(rng.integers(0, 6))]  # noqa: E731
    doubles = lambda: rng.normal(size=rng.integers(0, 8)).tolist()  # noqa: E731
    stamp = lambda: [int(rng.integers(-(2**31), 2**31)), int(rng.integers(0, 10**9))]  # noqa: E731
    header = lambda: [stamp(), text()]  # noqa: E731
    several = lambda make: [make() for _ in range(rng.integers(0, 4))]  # noqa: E731
    match kind:
        case "JointState":
            return [header(), texts(), doubles(), doubles(), doubles()]
        case "JointTrajectory":
            point = lambda: [doubles(), doubles(), doubles(), doubles(), stamp()]  # noqa: E731
            return [header(), texts(), several(point)]
        case "Float64MultiArray":
            size = lambda: int(rng.integers(0, 2**32))  # noqa: E731
            return [[several(lambda: [text(), size(), size()]), size()], doubles()]
    return [header(), texts(), several(lambda: [texts(), doubles()])]


def ours(kind: str, v: Any) -> Any:
    """Our message with these values."""
    m = messages
    if kind == "Float64MultiArray":
        return m.Float64MultiArray(
            m.MultiArrayLayout([m.MultiArrayDimension(*d) for d in v[0][0]], v[0][1]), v[1]
        )
    header = m.Header(m.Time(*v[0][0]), v[0][1])
    if kind == "JointState":
        return m.JointState(header, *v[1:])
    if kind == "JointTrajectory":
        points = [m.JointTrajectoryPoint(*p[:4], m.Duration(*p[4])) for p in v[2]]
        return m.JointTrajectory(header, v[1], points)
    return m.DynamicJointState(header, v[1], [m.InterfaceValue(*row) for row in v[2]])


def theirs(kind: str, v: Any, types: Any) -> Any:
    """The other serialiser's message with these values."""
    a = np.array
    if kind == "Float64MultiArray":
        dims = [types["std_msgs/msg/MultiArrayDimension"](*d) for d in v[0][0]]
        layout = types["std_msgs/msg/MultiArrayLayout"](dims, v[0][1])
        return types["std_msgs/msg/Float64MultiArray"](layout, a(v[1], dtype=float))
    header = types["std_msgs/msg/Header"](types["builtin_interfaces/msg/Time"](*v[0][0]), v[0][1])
    if kind == "JointState":
        return types["sensor_msgs/msg/JointState"](
            header, v[1], *(a(x, dtype=float) for x in v[2:])
        )
    if kind == "JointTrajectory":
        points = [
            types["trajectory_msgs/msg/JointTrajectoryPoint"](
                *(a(x, dtype=float) for x in p[:4]), types["builtin_interfaces/msg/Duration"](*p[4])
            )
            for p in v[2]
        ]
        return types["trajectory_msgs/msg/JointTrajectory"](header, v[1], points)
    rows = [types["control_msgs/msg/InterfaceValue"](r[0], a(r[1], dtype=float)) for r in v[2]]
    return types["control_msgs/msg/DynamicJointState"](header, v[1], rows)


@pytest.mark.parametrize("name", messages.MESSAGES)
def test_bytes_are_those_of_another_serialiser(name: str) -> None:
    typesys = pytest.importorskip("rosbags.typesys", reason="the extra 'ros' is not installed")
    store = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
    for each, definition in INTERFACES.items():
        store.register(typesys.get_types_from_msg(definition, each))
    kind, rng = name.rpartition("/")[2], np.random.default_rng(23)
    for _ in range(MESSAGES):
        value = random_value(kind, rng)
        mine = ours(kind, value)
        written = mine.serialize(use_version_2=False)
        other = bytes(store.serialize_cdr(theirs(kind, value, store.types), name))
        assert written == other
        assert type(mine).deserialize(other) == mine, "and read back"
        back = store.deserialize_cdr(written, name)
        assert bytes(store.serialize_cdr(back, name)) == written


def test_names_on_the_wire() -> None:
    assert wire_name("/joint_states") == "rt/joint_states"
    names = {each.__idl_typename__ for each in messages.MESSAGES.values()}
    assert "sensor_msgs.msg.dds_.JointState_" in {name.replace("::", ".") for name in names}
    with pytest.raises(UsageError, match="begin with /"):
        wire_name("joint_states")


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Ros2Address.parse("") == Ros2Address("/joint_states", "", "")
    assert Ros2Address.parse("/a,effort=/b") == Ros2Address("/a", "effort", "/b")
    with pytest.raises(UsageError, match="kinds: position"):
        Ros2Address.parse("/a,wish=/b")
    monkeypatch.setenv("ROS_DOMAIN_ID", "7")
    assert ros_domain() == 7
    for text in ("minus one", "300"):
        monkeypatch.setenv("ROS_DOMAIN_ID", text)
        with pytest.raises(UsageError, match="ROS_DOMAIN_ID"):
            ros_domain()


def connected(joints: list[str] = JOINTS, **options: Any) -> Ros2Connection:
    usual = {"domain": domain_number(), "loopback": True, "patience": 60.0}
    address = options.pop("address", Ros2Address(TOPIC))
    return Ros2Connection(joints, address, **(usual | options))


def test_a_robot_behind_topics_passes_the_kit() -> None:
    address = Ros2Address(TOPIC, "position", COMMANDS)
    with Node(domain_number(), JOINTS, obey=True):
        check_connection(lambda: connected(address=address))
        check_connection(lambda: connected())
        connection = connected(address=address)
        until = time.monotonic() + 30.0
        wanted = np.array([0.5, -0.25, 1.0])
        at = np.zeros(3)
        while time.monotonic() < until and not np.array_equal(at, wanted):
            connection.write(wanted)
            state = newest(connection, 5.0)
            at = at if state is None else state.q
        connection.close()
    assert np.array_equal(at, wanted), "it is where it was commanded to"


@pytest.mark.parametrize("kind", ["reversed", "dynamic"])
def test_joints_come_in_any_order_and_as_dynamic_states(kind: str) -> None:
    with Node(domain_number(), JOINTS, kind):
        connection = connected()
        state = newest(connection, 10.0)
        connection.close()
    assert state is not None
    assert np.allclose(state.q, [0.0, 0.1, 0.2])
    if kind == "dynamic":
        assert state.temperature is not None
        assert np.allclose(state.temperature, [40.0, 41.0, 42.0])


def test_a_node_that_vanishes_and_returns_is_followed() -> None:
    with Node(domain_number(), JOINTS):
        connection = connected()
        first = newest(connection, 10.0)
    while connection.read() is not None:
        pass
    assert newest(connection, 0.5) is None, "silence is silence"
    with Node(domain_number(), JOINTS):
        again = newest(connection, 60.0)
    connection.close()
    assert first is not None
    assert again is not None
    assert again.t > first.t


def heard(connection: Ros2Connection) -> None:
    """Read until some messages were turned away; all samples are sound."""
    until = time.monotonic() + 60.0
    while time.monotonic() < until and connection.rejected <= 5:
        state = connection.read()
        assert state is None or state.is_valid(3)


@pytest.mark.parametrize(
    "kind",
    [
        "not a number",
        pytest.param("huge", marks=pytest.mark.slow),
        pytest.param("short", marks=pytest.mark.slow),
        "renamed",
        "no text",
    ],
)
def test_nonsense_is_no_sample_and_other_names_are_named(kind: str) -> None:
    with Node(domain_number(), JOINTS, kind):
        connection = connected()
        if kind == "renamed":
            with pytest.raises(RefusedForSafety, match="other_shoulder"):
                heard(connection)
        else:
            heard(connection)
            assert connection.rejected > 5
        connection.close()


def test_what_is_wrong_is_named() -> None:
    number = domain_number() + 10  # a node that was killed is advertised for a while
    with (
        Node(number, JOINTS, "foreign"),
        pytest.raises(
            RefusedForSafety, match="published with type std_msgs::msg::dds_::Float64MultiArray_"
        ),
    ):
        connected(domain=number, patience=8.0)
    with pytest.raises(RefusedForSafety, match="no joint state came on"):
        connected(domain=number + 1, patience=0.3)
    with Node(number + 2, JOINTS), pytest.raises(RefusedForSafety, match="knee"):
        connected([*JOINTS, "knee"], domain=number + 2)


def test_another_domain_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    here = domain_number() + 60  # that nobody was in before
    monkeypatch.setattr("thetahat.connect.ros2.OTHER_DOMAINS", range(here + 40, here + 42))
    monkeypatch.setattr("thetahat.connect.ros2.LOOK", 6.0)
    with Node(here + 41, JOINTS):
        connected(domain=here + 41).close()  # it is up
        with pytest.raises(RefusedForSafety, match=f"published in domain {here + 41}"):
            connected(domain=here, patience=1.0)


def test_names_seen_before_change_nothing_of_what_is_read() -> None:
    rng, read = np.random.default_rng(24), messages.JointState.deserialize
    for _ in range(300):
        value = random_value("JointState", rng)
        other = random_value("JointState", rng)
        other[1] = value[1]  # the same names, and another frame, stamp and values
        first, second = (ours("JointState", each) for each in (value, other))
        read(first.serialize(use_version_2=False))
        assert read(second.serialize(use_version_2=False)) == second
        stranger = ours("JointState", random_value("JointState", rng))
        assert read(stranger.serialize(use_version_2=False)) == stranger


def test_a_message_cut_short_or_spoiled_is_read_as_if_its_names_were_new() -> None:
    rng, read = np.random.default_rng(25), messages.JointState.deserialize
    slow = messages.JointState.__idl__.deserialize
    value = [[[1, 2], "base"], ["a", "bc"], [1.0, 2.0], [], [3.0]]
    whole = ours("JointState", value).serialize(use_version_2=False)
    for _ in range(500):
        read(whole)  # its names are those of the last one
        spoiled = bytearray(whole[: rng.integers(4, len(whole) + 1)])
        spoiled[rng.integers(4, len(spoiled)) if len(spoiled) > 4 else 0] = rng.integers(0, 256)
        outcomes = []
        for reader in (read, slow):
            try:
                outcomes.append(reader(bytes(spoiled), has_header=True, use_version_2=None))
            except Exception as error:
                outcomes.append(type(error))
        assert repr(outcomes[0]) == repr(outcomes[1])

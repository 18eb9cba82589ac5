"""The files of a robot's C code, by name."""

from __future__ import annotations

from thetahat.export.codegen import c_templates
from thetahat.export.codegen.c_sources import RobotCode
from thetahat.export.codegen.self_test import self_test


def code_files(code: RobotCode) -> dict[str, str]:
    """Return the text of header, source, self-test, CMake file and, where the robot has computed
    torque, the controller.
    """
    files = {
        f"{code.prefix}.h": code.header(),
        f"{code.prefix}.c": code.source(),
        "self_test.c": self_test(code),
        "CMakeLists.txt": code.filled(c_templates.CMAKE),
    }
    if any(function.name == "computed_torque" for function in code.functions):
        files["computed_torque_controller.hpp"] = code.filled(c_templates.CONTROLLER)
    return files

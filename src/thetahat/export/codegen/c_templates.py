"""The fixed text around the generated functions; @name@ is the robot's prefix."""

from __future__ import annotations

HEADER = """\
/*
@about@
 */
#ifndef @NAME@_H
#define @NAME@_H

#define @NAME@_ROBOT_SHA256 "@hash@"
@sizes@

#ifdef __cplusplus
#define @NAME@_RESTRICT
extern "C" {
#else
#define @NAME@_RESTRICT restrict
#endif

typedef @real@ @name@_real;

/* names in the order of dq */
extern const char @name@_joint_names[@NAME@_NV][@NAME@_LONGEST_NAME];
/* the parameters that the code was generated with; hand in a table of your own to replace them */
extern const @name@_real @name@_parameters[@NAME@_PARAMETERS];

@functions@
#ifdef __cplusplus
}
#endif

#endif
"""

# gcc packs scalars of straight-line code into vectors at a loss
SOURCE = """\
#include "@name@.h"

#include <math.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-slp-vectorize")
#endif

typedef @name@_real real;

@parts@"""

CMAKE = """\
cmake_minimum_required(VERSION 3.10)
project(@name@ C)

option(@NAME@_NATIVE "Use all instructions of the processor that builds it" OFF)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(@name@ STATIC @name@.c)
target_include_directories(@name@ PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
set_target_properties(@name@ PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON
                      C_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
if(@NAME@_NATIVE)
  target_compile_options(@name@ PRIVATE -march=native -ffp-contract=fast)
endif()
if(UNIX)
  target_link_libraries(@name@ PUBLIC m)
endif()

add_executable(@name@_self_test self_test.c)
set_target_properties(@name@_self_test PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON)
target_link_libraries(@name@_self_test PRIVATE @name@)
enable_testing()
add_test(NAME self_test COMMAND @name@_self_test)
"""

CONTROLLER = """\
// Example: computed torque of @name@ as a ros2_control controller.
//
// It claims the effort interface of every joint and reads positions and speeds. The wanted motion
// is a member here; a controller for a robot takes it from a topic or an action, through a buffer
// that is safe in real time, and checks the states before it trusts them.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>

#include "controller_interface/controller_interface.hpp"

#include "@name@.h"

namespace @name@_control
{

class ComputedTorqueController : public controller_interface::ControllerInterface
{
public:
  controller_interface::CallbackReturn on_init() override
  {
    for (std::size_t k = 0; k < @NAME@_NV; ++k) {
      kp_[k] = 400;  // [1/s^2], 20 rad/s
      kd_[k] = 40;   // [1/s], critical damping
    }
    for (std::size_t k = 0; k < @NAME@_PARAMETERS; ++k) {
      parameters_[k] = @name@_parameters[k];
    }
    return controller_interface::CallbackReturn::SUCCESS;
  }

  controller_interface::InterfaceConfiguration command_interface_configuration() const override
  {
    return named({"effort"});
  }

  controller_interface::InterfaceConfiguration state_interface_configuration() const override
  {
    return named({"position", "velocity"});
  }

  // The robot is held where it is until a motion is wanted.
  controller_interface::CallbackReturn on_activate(const rclcpp_lifecycle::State &) override
  {
    for (std::size_t k = 0; k < @NAME@_NV; ++k) {
      wanted_q_[k] = static_cast<@name@_real>(state_interfaces_[2 * k].get_value());
      wanted_dq_[k] = wanted_ddq_[k] = 0;
    }
    return controller_interface::CallbackReturn::SUCCESS;
  }

  controller_interface::return_type update(
    const rclcpp::Time &, const rclcpp::Duration &) override
  {
    @name@_real q[@NAME@_NV], dq[@NAME@_NV], tau[@NAME@_NV];
    for (std::size_t k = 0; k < @NAME@_NV; ++k) {
      q[k] = static_cast<@name@_real>(state_interfaces_[2 * k].get_value());
      dq[k] = static_cast<@name@_real>(state_interfaces_[2 * k + 1].get_value());
    }
    @name@_computed_torque(
      parameters_, q, dq, wanted_q_, wanted_dq_, wanted_ddq_, kp_, kd_, tau);
    for (std::size_t k = 0; k < @NAME@_NV; ++k) {
      if (!std::isfinite(tau[k])) {
        return controller_interface::return_type::ERROR;
      }
    }
    for (std::size_t k = 0; k < @NAME@_NV; ++k) {
      command_interfaces_[k].set_value(static_cast<double>(tau[k]));
    }
    return controller_interface::return_type::OK;
  }

protected:
  @name@_real wanted_q_[@NAME@_NV], wanted_dq_[@NAME@_NV], wanted_ddq_[@NAME@_NV];
  @name@_real kp_[@NAME@_NV], kd_[@NAME@_NV];
  @name@_real parameters_[@NAME@_PARAMETERS];

private:
  static controller_interface::InterfaceConfiguration named(
    std::initializer_list<const char *> interfaces)
  {
    controller_interface::InterfaceConfiguration configuration;
    configuration.type = controller_interface::interface_configuration_type::INDIVIDUAL;
    for (std::size_t k = 0; k < @NAME@_NV; ++k) {
      for (const char * interface : interfaces) {
        configuration.names.push_back(std::string(@name@_joint_names[k]) + "/" + interface);
      }
    }
    return configuration;
  }
};

}  // namespace @name@_control
"""

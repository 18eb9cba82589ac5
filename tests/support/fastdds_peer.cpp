// A robot that speaks ROS 2 through Fast DDS, ROS 2's default middleware: the other side of tests.
//
//   fastdds_peer DOMAIN KIND RATE SECONDS STATES COMMANDS JOINT...
//
// It publishes sensor_msgs/JointState at RATE on STATES (DDS topic names), and takes commands of KIND
// on COMMANDS: position or effort (std_msgs/Float64MultiArray), trajectory
// (trajectory_msgs/JointTrajectory), dynamic (control_msgs/DynamicJointState). Positions are reached at
// once; efforts accelerate joints of unit inertia with some damping. Nothing leaves 127.0.0.1.
// Messages are written here from their public interface definitions; Fast CDR lays them out.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fastcdr/Cdr.h>
#include <fastcdr/FastBuffer.h>
#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/DataReaderListener.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>
#include <fastrtps/utils/IPLocator.h>

namespace fast = eprosima::fastdds::dds;
namespace rtps = eprosima::fastrtps::rtps;
using eprosima::fastcdr::Cdr;
using eprosima::fastcdr::FastBuffer;
using Doubles = std::vector<double>;
using Texts = std::vector<std::string>;

// -- messages: `each` goes through the fields in order, to write them and to read them -------------

struct Stamp {
  int32_t sec = 0;
  uint32_t nanosec = 0;
  template <class Act> void each(Act& act) { act(sec), act(nanosec); }
};
struct Header {
  Stamp stamp;
  std::string frame_id;
  template <class Act> void each(Act& act) { stamp.each(act), act(frame_id); }
};
struct JointState {
  static constexpr const char* type = "sensor_msgs::msg::dds_::JointState_";
  Header header;
  Texts name;
  Doubles position, velocity, effort;
  template <class Act> void each(Act& act) {
    header.each(act), act(name), act(position), act(velocity), act(effort);
  }
};
struct Dimension {
  std::string label;
  uint32_t size = 0, stride = 0;
  template <class Act> void each(Act& act) { act(label), act(size), act(stride); }
};
struct Float64MultiArray {
  static constexpr const char* type = "std_msgs::msg::dds_::Float64MultiArray_";
  std::vector<Dimension> dim;
  uint32_t data_offset = 0;
  Doubles data;
  template <class Act> void each(Act& act) { act.rows(dim), act(data_offset), act(data); }
};
struct Point {
  Doubles positions, velocities, accelerations, effort;
  Stamp time_from_start;
  template <class Act> void each(Act& act) {
    act(positions), act(velocities), act(accelerations), act(effort), time_from_start.each(act);
  }
};
struct JointTrajectory {
  static constexpr const char* type = "trajectory_msgs::msg::dds_::JointTrajectory_";
  Header header;
  Texts joint_names;
  std::vector<Point> points;
  template <class Act> void each(Act& act) { header.each(act), act(joint_names), act.rows(points); }
};
struct InterfaceValue {
  Texts interface_names;
  Doubles values;
  template <class Act> void each(Act& act) { act(interface_names), act(values); }
};
struct DynamicJointState {
  static constexpr const char* type = "control_msgs::msg::dds_::DynamicJointState_";
  Header header;
  Texts joint_names;
  std::vector<InterfaceValue> interface_values;
  template <class Act> void each(Act& act) {
    header.each(act), act(joint_names), act.rows(interface_values);
  }
};

struct Write {
  Cdr& cdr;
  template <class Value> void operator()(Value& value) { cdr << value; }
  template <class Row> void rows(std::vector<Row>& rows) {
    cdr << static_cast<uint32_t>(rows.size());
    for (auto& row : rows) row.each(*this);
  }
};
struct Read {
  Cdr& cdr;
  template <class Value> void operator()(Value& value) { cdr >> value; }
  template <class Row> void rows(std::vector<Row>& rows) {
    uint32_t count = 0;
    cdr >> count;
    if (count > 100000) throw std::length_error("too many rows");
    rows.resize(count);
    for (auto& row : rows) row.each(*this);
  }
};

template <class Message> class Support : public fast::TopicDataType {
 public:
  Support() {
    setName(Message::type);
    m_typeSize = 1 << 16;  // bytes at most
    m_isGetKeyDefined = false;
    auto_fill_type_object(false);
    auto_fill_type_information(false);
  }
  bool serialize(void* data, rtps::SerializedPayload_t* payload) override {
    FastBuffer buffer(reinterpret_cast<char*>(payload->data), payload->max_size);
    Cdr cdr(buffer, Cdr::DEFAULT_ENDIAN, Cdr::DDS_CDR);
    payload->encapsulation = CDR_LE;
    cdr.serialize_encapsulation();
    Write write{cdr};
    static_cast<Message*>(data)->each(write);
    payload->length = static_cast<uint32_t>(cdr.getSerializedDataLength());
    return true;
  }
  bool deserialize(rtps::SerializedPayload_t* payload, void* data) override {
    try {
      FastBuffer buffer(reinterpret_cast<char*>(payload->data), payload->length);
      Cdr cdr(buffer, Cdr::DEFAULT_ENDIAN, Cdr::DDS_CDR);
      cdr.read_encapsulation();
      Read read{cdr};
      static_cast<Message*>(data)->each(read);
      return true;
    } catch (const std::exception& error) {
      std::cerr << "a message of type " << Message::type << ": " << error.what() << std::endl;
      return false;
    }
  }
  std::function<uint32_t()> getSerializedSizeProvider(void*) override {
    return [this] { return m_typeSize; };
  }
  void* createData() override { return new Message(); }
  void deleteData(void* data) override { delete static_cast<Message*>(data); }
  bool getKey(void*, rtps::InstanceHandle_t*, bool) override { return false; }
};

// -- the robot -------------------------------------------------------------------------------------

struct Robot {
  Texts names;
  Doubles q, dq, effort;
  std::mutex lock;

  void positions(const Texts& joints, const Doubles& values) { set(joints, values, q); }
  void efforts(const Texts& joints, const Doubles& values) { set(joints, values, effort); }
  void advance(double dt) {
    std::lock_guard<std::mutex> guard(lock);
    for (size_t j = 0; j < q.size(); ++j) {
      dq[j] += dt * (effort[j] - dq[j]);
      q[j] += dt * dq[j];
    }
  }

 private:
  void set(const Texts& joints, const Doubles& values, Doubles& into) {
    std::lock_guard<std::mutex> guard(lock);
    if (values.size() != joints.size()) return;
    for (size_t i = 0; i < joints.size(); ++i)
      for (size_t j = 0; j < names.size(); ++j)
        if (joints[i] == names[j]) into[j] = values[i];
  }
};

void obey(Robot& robot, const std::string& kind, const Float64MultiArray& command) {
  if (kind == "effort")
    robot.efforts(robot.names, command.data);
  else
    robot.positions(robot.names, command.data);
}
void obey(Robot& robot, const std::string&, const JointTrajectory& command) {
  if (!command.points.empty()) robot.positions(command.joint_names, command.points.back().positions);
}
void obey(Robot& robot, const std::string&, const DynamicJointState& command) {
  for (size_t i = 0; i < command.joint_names.size() && i < command.interface_values.size(); ++i) {
    const auto& row = command.interface_values[i];
    for (size_t k = 0; k < row.interface_names.size() && k < row.values.size(); ++k) {
      if (row.interface_names[k] == "position")
        robot.positions({command.joint_names[i]}, {row.values[k]});
      if (row.interface_names[k] == "effort")
        robot.efforts({command.joint_names[i]}, {row.values[k]});
    }
  }
}

template <class Message> class Listener : public fast::DataReaderListener {
 public:
  Listener(Robot& robot, std::string kind) : robot_(robot), kind_(std::move(kind)) {}
  void on_data_available(fast::DataReader* reader) override {
    fast::SampleInfo info;
    Message message;
    while (reader->take_next_sample(&message, &info) == ReturnCode_t::RETCODE_OK)
      if (info.valid_data) obey(robot_, kind_, message);
  }

 private:
  Robot& robot_;
  std::string kind_;
};

template <class Message>
void hear(fast::DomainParticipant* participant, Robot& robot, const std::string& kind,
          const std::string& topic) {
  fast::TypeSupport(new Support<Message>()).register_type(participant);
  auto* commands = participant->create_topic(topic, Message::type, fast::TOPIC_QOS_DEFAULT);
  auto* subscriber = participant->create_subscriber(fast::SUBSCRIBER_QOS_DEFAULT);
  fast::DataReaderQos qos = fast::DATAREADER_QOS_DEFAULT;
  qos.reliability().kind = fast::RELIABLE_RELIABILITY_QOS;
  qos.history().depth = 10;
  auto memory = eprosima::fastrtps::rtps::DYNAMIC_REUSABLE_MEMORY_MODE;
  qos.endpoint().history_memory_policy = memory;
  subscriber->create_datareader(commands, qos, new Listener<Message>(robot, kind));
}

fast::DomainParticipant* on_loopback(uint32_t domain) {
  fast::DomainParticipantQos qos;
  auto udp = std::make_shared<eprosima::fastdds::rtps::UDPv4TransportDescriptor>();
  udp->interfaceWhiteList.push_back("127.0.0.1");
  qos.transport().use_builtin_transports = false;
  qos.transport().user_transports.push_back(udp);
  rtps::Locator_t here;
  here.kind = LOCATOR_KIND_UDPv4;
  rtps::IPLocator::setIPv4(here, "127.0.0.1");
  qos.wire_protocol().builtin.initialPeersList.push_back(here);
  qos.wire_protocol().builtin.avoid_builtin_multicast = true;
  qos.name("fastdds_peer");
  return fast::DomainParticipantFactory::get_instance()->create_participant(domain, qos);
}

int main(int argc, char** argv) {
  if (argc < 8) {
    std::cerr << "usage: fastdds_peer DOMAIN KIND RATE SECONDS STATES COMMANDS JOINT..." << std::endl;
    return 2;
  }
  const std::string kind = argv[2], states = argv[5], commands = argv[6];
  const double rate = std::atof(argv[3]), seconds = std::atof(argv[4]);
  Robot robot;
  robot.names.assign(argv + 7, argv + argc);
  robot.q.assign(robot.names.size(), 0.0);
  robot.dq = robot.effort = robot.q;

  auto* participant = on_loopback(static_cast<uint32_t>(std::atoi(argv[1])));
  if (participant == nullptr) return 1;
  if (kind == "trajectory")
    hear<JointTrajectory>(participant, robot, kind, commands);
  else if (kind == "dynamic")
    hear<DynamicJointState>(participant, robot, kind, commands);
  else
    hear<Float64MultiArray>(participant, robot, kind, commands);

  fast::TypeSupport(new Support<JointState>()).register_type(participant);
  auto* topic = participant->create_topic(states, JointState::type, fast::TOPIC_QOS_DEFAULT);
  auto* publisher = participant->create_publisher(fast::PUBLISHER_QOS_DEFAULT);
  fast::DataWriterQos qos = fast::DATAWRITER_QOS_DEFAULT;
  qos.reliability().kind = fast::RELIABLE_RELIABILITY_QOS;
  qos.history().depth = 10;
  qos.endpoint().history_memory_policy = eprosima::fastrtps::rtps::DYNAMIC_REUSABLE_MEMORY_MODE;
  auto* writer = publisher->create_datawriter(topic, qos);

  using clock = std::chrono::steady_clock;
  const auto period = std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(1.0 / rate));
  const auto begin = clock::now();
  auto due = begin;
  uint64_t count = 0;
  while (std::chrono::duration<double>(clock::now() - begin).count() < seconds) {
    robot.advance(1.0 / rate);
    JointState message;
    const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::system_clock::now().time_since_epoch()).count();
    message.header.stamp.sec = static_cast<int32_t>(now / 1000000000);
    message.header.stamp.nanosec = static_cast<uint32_t>(now % 1000000000);
    message.header.frame_id = std::to_string(count++);
    {
      std::lock_guard<std::mutex> guard(robot.lock);
      message.name = robot.names;
      message.position = robot.q;
      message.velocity = robot.dq;
      message.effort = robot.effort;
    }
    writer->write(&message);
    due += period;
    std::this_thread::sleep_until(due);
  }
  return 0;
}

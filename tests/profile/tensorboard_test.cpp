#include "ridge/profile/tensorboard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <protozero/pbf_reader.hpp>
#include <regex>

#include "ridge/base/error.h"
#include "ridge/profile/crc32c.h"
#include "tests/base/temporary_directory.h"

namespace ridge {
namespace {

TEST(Crc32c, GivesThePublishedValues) {
  // RFC 3720, B.4.
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
}

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// As a reader of TFRecords unmasks it.
std::uint32_t unmasked(std::uint64_t masked) {
  const std::uint32_t turned = static_cast<std::uint32_t>(masked) - 0xa282ead8u;
  return turned >> 17 | turned << 15;
}

struct Event {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string version;
  std::map<std::string, float> values;
};

Event parse_event(std::string_view data) {
  Event event;
  protozero::pbf_reader reader(data.data(), data.size());
  while (reader.next()) {
    switch (reader.tag()) {
      case 1:
        event.wall_time = reader.get_double();
        break;
      case 2:
        event.step = reader.get_int64();
        break;
      case 3:
        event.version = reader.get_string();
        break;
      case 5: {
        protozero::pbf_reader summary = reader.get_message();
        while (summary.next(1)) {
          protozero::pbf_reader value = summary.get_message();
          std::string tag;
          while (value.next()) {
            if (value.tag() == 1)
              tag = value.get_string();
            else if (value.tag() == 2)
              event.values[tag] = value.get_float();
            else
              ADD_FAILURE() << "field " << value.tag();
          }
        }
        break;
      }
      default:
        ADD_FAILURE() << "field " << reader.tag();
        return event;
    }
  }
  return event;
}

std::vector<Event> read_events(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<Event> events;
  for (std::string_view rest = text; !rest.empty();) {
    const std::uint64_t length = little_endian(rest.substr(0, 8));
    if (rest.size() < length + 16) throw std::runtime_error("a record is cut off");
    const std::string_view data = rest.substr(12, length);
    EXPECT_EQ(unmasked(little_endian(rest.substr(8, 4))), crc32c(rest.substr(0, 8)));
    EXPECT_EQ(unmasked(little_endian(rest.substr(12 + length, 4))), crc32c(data));
    events.push_back(parse_event(data));
    rest.remove_prefix(length + 16);
  }
  return events;
}

TEST(EventFile, WritesWhatTensorBoardReads) {
  const TemporaryDirectory directory;
  EventFile file(directory.path, "a host/1", 1767225600.5);
  const Scalar first[] = {{"train/loss", 6.9}, {"train/tokens_per_second", 12345}};
  const Scalar second[] = {{"train/loss", std::nan("")}};
  file.add(1, 1767225601.25, first);
  file.add(std::int64_t{1} << 40, 1767225602, second);
  EXPECT_TRUE(
      std::regex_match(file.path().filename().string(),
                       std::regex(R"(events\.out\.tfevents\.1767225600\.a_host_1\.\d+\.0)")))
      << file.path();

  const std::vector<Event> events = read_events(file.path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[0].wall_time, 1767225600.5);
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[1].wall_time, 1767225601.25);
  EXPECT_EQ(events[1].values, (std::map<std::string, float>{{"train/loss", 6.9f},
                                                            {"train/tokens_per_second", 12345}}));
  EXPECT_EQ(events[2].step, std::int64_t{1} << 40);
  EXPECT_TRUE(std::isnan(events[2].values.at("train/loss")));
}

TEST(EventFile, NeverWritesToAnothersFile) {
  const TemporaryDirectory directory;
  const EventFile one(directory.path, "host", 1000), two(directory.path, "host", 1000);
  EXPECT_NE(one.path(), two.path());
  EXPECT_TRUE(two.path().string().ends_with(".1"));
  EXPECT_NE(one.path().string().find("tfevents.0000001000."), std::string::npos);
}

TEST(EventFile, SaysWhereItCannotWrite) {
  try {
    const EventFile file("/nonexistent", "host", 0);
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent/events.out"), std::string::npos);
  }
}

}  // namespace
}  // namespace ridge

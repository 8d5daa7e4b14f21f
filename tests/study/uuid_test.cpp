#include "ridge/study/uuid.h"

#include <gtest/gtest.h>

#include <set>

namespace ridge {
namespace {

TEST(Uuid, IsRandomOfVersion4) {
  std::set<Uuid> seen;
  for (int i = 0; i < 1000; ++i) {
    const Uuid uuid = random_uuid();
    EXPECT_EQ(uuid[6] >> 4, 4);
    EXPECT_EQ(uuid[8] >> 6, 2);
    EXPECT_TRUE(seen.insert(uuid).second);
  }
}

TEST(Uuid, IsWrittenAndReadBack) {
  const std::string text = "2f0c6a3e-8d47-4f6b-9a1c-0d5be1f07c11";
  const std::optional<Uuid> uuid = uuid_from(text);
  ASSERT_TRUE(uuid);
  EXPECT_EQ(to_string(*uuid), text);
  EXPECT_EQ(uuid_from("2F0C6A3E8D474F6B9A1C0D5BE1F07C11"), uuid);
  for (const char* other :
       {"", "2f0c", "2f0c6a3e-8d47-4f6b-9a1c-0d5be1f07c1", "2f0c6a3e-8d47-4f6b-9a1c-0d5be1f07c1g",
        "2f0c6a3e-8d47-4f6b-9a1c-0d5be1f07c111"})
    EXPECT_FALSE(uuid_from(other)) << other;
}

TEST(Uuid, HasPrefixes) {
  const auto range = uuids_with_prefix("2f0c6");
  ASSERT_TRUE(range);
  EXPECT_EQ(to_string(range->first), "2f0c6000-0000-0000-0000-000000000000");
  EXPECT_EQ(to_string(range->second), "2f0c6fff-ffff-ffff-ffff-ffffffffffff");
  EXPECT_FALSE(uuids_with_prefix("2f0"));
  EXPECT_TRUE(uuids_with_prefix("2f0", 3));
  EXPECT_FALSE(uuids_with_prefix("baseline"));
}

}  // namespace
}  // namespace ridge

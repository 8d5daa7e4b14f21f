#include "ridge/base/vendor_library.h"

#include <gmock/gmock.h>

#include "ridge/base/error.h"
#include "tests/base/message_of.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The C library's mathematics, for want of a vendor's library that every machine has.
LibrarySearch mathematics() {
  return {"libm", {"libm-of-nobody.so.6", "libm.so.6"}, "angles need libm: install it"};
}

struct Mathematics : VendorLibrary {
  explicit Mathematics(const LibrarySearch& search = mathematics()) : VendorLibrary(search) {}
  Function<double(double)> cosine{*this, "cos"};
  OptionalFunction<double(double, double)> power{*this, "pow"};
  OptionalFunction<double(double)> versine{*this, "versine"};
};

struct MoreMathematics : Mathematics {
  Function<double(double)> versine{*this, "versine"};
};

TEST(VendorLibrary, CallsFunctionsUnderTheirTypes) {
  const Mathematics library;
  EXPECT_THAT(library.path(), HasSubstr("libm.so"));
  EXPECT_EQ(library.cosine(0), 1.0);
  ASSERT_TRUE(library.power);
  EXPECT_EQ(library.power(2, 10), 1024.0);
  EXPECT_FALSE(library.versine);
}

TEST(VendorLibrary, SaysWhatIsMissingAndTheRemedy) {
  LibrarySearch search = mathematics();
  search.files = {"libm-of-nobody.so.6"};
  EXPECT_EQ(message_of<DeviceError>([&] { const Mathematics library(search); }),
            "angles need libm: install it");
  EXPECT_THAT(message_of<DeviceError>([] { const MoreMathematics library; }),
              AllOf(HasSubstr("libm.so.6 has no versine"), HasSubstr("ridge doctor")));
}

}  // namespace
}  // namespace ridge

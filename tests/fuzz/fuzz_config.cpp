// The JSON configuration on any text: it is taken or refused in one line, what is taken comes back
// the same through to_json(), and the heap grows no faster than the text.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ridge/base/error.h"
#include "ridge/session/options.h"
#include "tests/fuzz/allocation.h"

namespace {

// The list of options and a message; and for each byte, its copies on the way through a JSON
// parser, whose buffers double as they grow.
constexpr std::size_t allowance = 64 << 10;
constexpr std::size_t copies = 16;

void require(bool condition) {
  if (!condition) std::abort();
}

void check(std::string_view text) {
  ridge::RunOptions options;
  try {
    const ridge::AllocationLimit limit(allowance + copies * text.size());
    ridge::apply_json(options, text);
  } catch (const ridge::FormatError&) {
    require(options == ridge::RunOptions{});  // untouched
    throw;
  }
  options.resolve();
  // The way back takes a hundred times as long, so only some go it. Text that is not UTF-8 would
  // not come back the same; resolve() has refused it.
  if (text.size() % 16 != 0) return;
  ridge::RunOptions again;
  ridge::apply_json(again, ridge::to_json(options));
  require(again == options);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    check({reinterpret_cast<const char*>(data), size});
  } catch (const ridge::Error& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}

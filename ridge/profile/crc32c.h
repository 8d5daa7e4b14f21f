#pragma once

#include <cstdint>
#include <string_view>

namespace ridge {

// The Castagnoli cyclic redundancy check, as RFC 3720 (iSCSI), appendix B.4, defines it.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace ridge

#pragma once

namespace ridge {

// Whether this program is one that a sanitizer makes some ten times slower, and as much larger.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool is_sanitized = true;
#else
inline constexpr bool is_sanitized = false;
#endif

}  // namespace ridge

#pragma once

#include <string_view>

// The text of headers, put into the program where it is built (ridge/CMakeLists.txt): what kernels
// that are compiled at run time include.
namespace ridge {

extern const std::string_view rtc_runtime;     // gpu/codegen/runtime_rtc.h
extern const std::string_view rtc_activation;  // gpu/kernels/activation.h
extern const std::string_view rtc_tail;        // base/normal_tail.h

}  // namespace ridge

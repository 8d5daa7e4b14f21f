#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ridge {

// What the system says of this machine and this process; what it does not say is empty or 0.

std::string host_name();              // "localhost" if it does not say
std::string system_name();            // "Linux 6.1.0 x86_64"
std::string processor_name();         // "AMD EPYC 9654"
std::string compiler_name();          // that this was built with
std::string program_digest();         // of the file of this process: 16 hexadecimal digits
std::string utc_timestamp();          // now, in ISO 8601: "2026-01-31T12:00:00Z"
std::uint64_t peak_resident_bytes();  // of this process

// The value of the first line "key : value" of a file under /proc; empty without one.
std::string proc_value(const char* path, std::string_view key);

}  // namespace ridge

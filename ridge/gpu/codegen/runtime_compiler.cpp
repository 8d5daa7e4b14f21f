#include "ridge/gpu/codegen/runtime_compiler.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "ridge/base/error.h"
#include "ridge/base/vendor_library.h"
#include "ridge/gpu/codegen/rtc_headers.h"
#include "ridge/gpu/device/libraries.h"

namespace ridge::gpu {
namespace {

// The interface of NVRTC as far as it is used here, declared because its header need not be there
// (NVRTC User Guide). AMD's hipRTC has the same functions under a prefix of its own, with "Code"
// for NVRTC's "CUBIN" and an architecture such as gfx90a.
#if defined(__HIP__)
constexpr std::string_view compiler_name = "hipRTC", prefix = "hiprtc", image = "Code";
#else
constexpr std::string_view compiler_name = "NVRTC", prefix = "nvrtc", image = "CUBIN";
#endif
using Result = int;
using Program = struct ProgramState*;
constexpr Result success = 0;

std::string function_name(std::string_view suffix, std::string_view end = "") {
  return fmt::format("{}{}{}", prefix, suffix, end);
}

struct Header {
  const char* name;
  std::string text;
};

// What a generated kernel may include, under the names it has there.
const std::array<Header, 3>& headers() {
  static const std::array<Header, 3> all{
      {{"ridge/gpu/device/runtime.h", std::string(rtc_runtime)},
       {"ridge/gpu/kernels/activation.h", std::string(rtc_activation)},
       {"ridge/base/normal_tail.h", std::string(rtc_tail)}}};
  return all;
}

std::vector<std::string> flags_for(const std::string& architecture) {
  std::vector<std::string> flags{fmt::format("--gpu-architecture={}", architecture), "--std=c++20"};
#if !defined(__HIP__)
  // Else functions that are constexpr, and so of the host as well, would be refused.
  flags.emplace_back("--device-as-default-execution-space");
#endif
  return flags;
}

std::string first_error(const std::string& log) {
  const auto at = log.find("error");
  const auto begin = at == std::string::npos ? 0 : log.rfind('\n', at) + 1;  // npos + 1 is 0
  return log.substr(begin, log.find('\n', begin) - begin);
}

}  // namespace

struct RuntimeCompiler::Library : VendorLibrary {
  Library() : VendorLibrary(search_for(nvrtc_library())) {}

  Function<Result(Program*, const char*, const char*, int, const char* const*, const char* const*)>
      create{*this, function_name("CreateProgram").c_str()};
  Function<Result(Program*)> destroy{*this, function_name("DestroyProgram").c_str()};
  Function<Result(Program, int, const char* const*)> compile{
      *this, function_name("CompileProgram").c_str()};
  Function<Result(Program, std::size_t*)> log_size{*this,
                                                   function_name("GetProgramLogSize").c_str()};
  Function<Result(Program, char*)> log{*this, function_name("GetProgramLog").c_str()};
  Function<Result(Program, std::size_t*)> image_size{
      *this, function_name("Get", image).append("Size").c_str()};
  Function<Result(Program, char*)> get_image{*this, function_name("Get", image).c_str()};
  Function<Result(int*, int*)> version{*this, function_name("Version").c_str()};
  Function<const char*(Result)> error_string{*this, function_name("GetErrorString").c_str()};

  void check(Result result, std::string_view what) const {
    if (result != success)
      throw DeviceError("{} failed when {}: {}", compiler_name, what, error_string(result));
  }
  std::string log_of(Program program) const {
    std::size_t size = 0;
    if (log_size(program, &size) != success || size == 0) return "";
    std::string text(size, '\0');
    return log(program, text.data()) == success ? text.c_str() : "";
  }
};

RuntimeCompiler::RuntimeCompiler() : library_(std::make_unique<const Library>()) {}
RuntimeCompiler::~RuntimeCompiler() = default;

std::string RuntimeCompiler::version() const {
  int major = 0, minor = 0;
  library_->check(library_->version(&major, &minor), "asked for its version");
  return fmt::format("{} {}.{}", compiler_name, major, minor);
}

std::vector<char> RuntimeCompiler::compile(const std::string& name, const std::string& code,
                                           const std::string& architecture) const {
  const Library& lib = *library_;
  std::array<const char*, 3> texts{}, names{};
  for (std::size_t i = 0; i < headers().size(); ++i) {
    names[i] = headers()[i].name;
    texts[i] = headers()[i].text.c_str();
  }
  struct Handle {
    const Library& lib;
    Program program = nullptr;
    ~Handle() {
      if (program) lib.destroy(&program);
    }
  } handle{lib};
  lib.check(lib.create(&handle.program, code.c_str(), (name + ".cu").c_str(),
                       static_cast<int>(texts.size()), texts.data(), names.data()),
            "given " + name);
  std::vector<const char*> flags;
  const std::vector<std::string> words = flags_for(architecture);
  for (const std::string& word : words) flags.push_back(word.c_str());
  if (const Result result =
          lib.compile(handle.program, static_cast<int>(flags.size()), flags.data());
      result != success)
    throw DeviceError("{} refused the kernel {} for {}: {}: {}", version(), name, architecture,
                      lib.error_string(result), first_error(lib.log_of(handle.program)));
  std::size_t size = 0;
  lib.check(lib.image_size(handle.program, &size), "asked for code");
  std::vector<char> code_of(size);
  lib.check(lib.get_image(handle.program, code_of.data()), "asked for code");
  return code_of;
}

std::string RuntimeCompiler::target(int compute_capability) {
  return fmt::format("sm_{}", compute_capability);
}

std::string RuntimeCompiler::input(const std::string& code, const std::string& architecture) {
  std::string all = code;
  for (const std::string& flag : flags_for(architecture)) all += "\n// " + flag;
  for (const Header& header : headers())
    all += fmt::format("\n// {}\n{}", header.name, header.text);
  return all;
}

}  // namespace ridge::gpu

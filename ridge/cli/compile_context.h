#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ridge {

// What --compileContext asks for: the keyword arguments of torch.compile, as a dict of Python.
struct CompileContext {
  std::string mode = "default";    // a compile mode of schedules(); "none" if 'disable' is True
  std::vector<std::string> notes;  // what each argument that changes nothing means here
};

// From a literal such as "{'mode': 'max-autotune', 'fullgraph': True}": strings, numbers, True,
// False, None, and dicts of them. UsageError for a text that is no such dict, and for arguments
// that torch.compile does not have, or whose values mean nothing here.
CompileContext parse_compile_context(std::string_view text);

}  // namespace ridge

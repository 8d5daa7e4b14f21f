#pragma once

#include <cstdlib>

namespace ridge {

// A variable of the environment, while this lives.
class SetVariable {
 public:
  SetVariable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~SetVariable() { ::unsetenv(name_); }
  SetVariable(const SetVariable&) = delete;
  SetVariable& operator=(const SetVariable&) = delete;

 private:
  const char* name_;
};

}  // namespace ridge

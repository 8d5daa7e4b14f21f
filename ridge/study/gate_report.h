#pragma once

// What the gate found, as a person and other programs read it.

#include <string>

#include "ridge/study/gate.h"

namespace ridge {

std::string gate_text(const GateResult& result);      // tables for a terminal
std::string gate_json(const GateResult& result);      // "ridge-gate-1"
std::string gate_junit(const GateResult& result);     // JUnit XML: a test case for each metric
std::string gate_markdown(const GateResult& result);  // for a pull request

}  // namespace ridge

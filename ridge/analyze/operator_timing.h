#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ridge/base/shape.h"
#include "ridge/device/device.h"
#include "ridge/graph/op_rules.h"
#include "ridge/ops/op.h"

namespace ridge {

// One operator on operands of these types.
struct OperatorCase {
  std::string label;
  Op op;
  std::vector<TensorType> in;
  // The first result takes the memory of the first operand, as an operator of elements can.
  bool in_place = false;
  // The skew of integer operands, ids of rows or classes: rows * u^id_skew for uniform u.
  double id_skew = 1;
};

struct OperatorTiming {
  std::size_t most_bytes = std::size_t{24} << 30;  // of operands; a set of them fits, or an Error
  std::int64_t warmup = 2;                         // repetitions before those that count
  std::int64_t repetitions = 9;
  KernelChoice kernels = {};   // which of several
  std::int64_t launches = 24;  // in a repetition, at least; of an operator without rotation 4
};

// An operator as it is within a run, to be timed as often as wanted: operands rotate over more
// memory than the device's last cache holds, so that each launch finds its own in memory; on a
// device that can capture, the launches are captured. Operands are random numbers between 1/4 and
// 4. OutOfMemoryError if one set of operands exceeds most_bytes or the device's memory.
class TimedOperator {
 public:
  TimedOperator(Device& device, const OperatorCase& what, const OperatorTiming& how = {});
  ~TimedOperator();
  double seconds();  // of one launch, by a repetition

 private:
  struct Prepared;
  std::unique_ptr<Prepared> prepared_;
};

// The same by repetition, without the warm-up.
std::vector<double> time_operator(Device& device, const OperatorCase& what,
                                  const OperatorTiming& how = {});

// Its exact work.
Cost cost_of(const OperatorCase& what);

}  // namespace ridge

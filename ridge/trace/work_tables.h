#pragma once

// Sums over a trace's work: by kernel, by operator and shape, by copy, by launching call.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ridge/base/product_kind.h"
#include "ridge/device/data_sheets.h"
#include "ridge/trace/device_work.h"

namespace ridge::trace {

struct KernelSum {
  std::string name;
  WorkClass work = WorkClass::compute;
  std::uint64_t count = 0;
  double us = 0, min_us = 0, max_us = 0;
};

struct OperatorSum {
  std::string name;
  std::string shape, types;  // of its inputs, as JSON; empty if the trace has none
  std::uint64_t count = 0;
  double host_us = 0, self_host_us = 0;  // with what it calls, and without
  double device_us = 0;                  // of the work that it launched itself
  std::uint64_t kernels = 0;             // as many pieces of work
  // The least that all its calls do, 0 if name, shapes and types do not tell: see operator_work.h.
  double flops = 0, bytes = 0;
  std::optional<ProductKind> products;
  // The least time in which the card can do it, by its data sheet; 0 if that is not known.
  double floor_us = 0;
};

struct CopySum {
  std::string name;  // "Memcpy HtoD (Pageable -> Device)"
  std::uint64_t count = 0;
  double us = 0;
  std::int64_t bytes = 0;  // 0 if the trace has none
};

struct LaunchSum {
  std::string call;  // "cudaLaunchKernel"
  std::uint64_t count = 0;
  double host_us = 0;  // within the calls
};

struct LaunchStatistics {
  std::vector<LaunchSum> calls;  // that put work on the card, most host time first
  // From the end of a call to the begin of its first work, us; empty without calls.
  std::optional<double> median_delay_us, p90_delay_us;
  std::uint64_t short_kernels = 0;  // below short_kernel_us
  double short_us = 0;              // their time
  // Work that was launched and had not ended, counted at launches.
  double mean_queue = 0;
  std::uint64_t longest_queue = 0;

  static constexpr double short_kernel_us = 5;
};

// The name without what all such names share: result, namespaces of PyTorch's, parameters.
std::string short_kernel_name(std::string_view name);

// The operator that launched each piece of work: around its call, or, without calls, the one with
// the same external id; no_row if there is none.
std::vector<Row> operators_of_work(const Trace& trace, const Work& work,
                                   const HostNesting& nesting);

std::vector<KernelSum> kernel_sums(const Trace& trace, const Work& work);
// `operators` are those of the work, and floors are of a card, if it is given.
std::vector<OperatorSum> operator_sums(const Trace& trace, const Work& work,
                                       const HostNesting& nesting,
                                       const std::vector<Row>& operators, const DataSheet* card);
std::vector<CopySum> copy_sums(const Trace& trace, const Work& work);
LaunchStatistics launch_statistics(const Trace& trace, const Work& work);

}  // namespace ridge::trace

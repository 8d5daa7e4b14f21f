#include "ridge/gpu/codegen/pointwise_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/base/digest.h"

namespace ridge::gpu {
namespace {

using Code = Pointwise::Code;
// The threads of a block. A thread takes as many elements as make an access of 16 bytes; more gain
// nothing.
constexpr int threads = 256;

std::string_view type_name(DType dtype) {
  return dtype == DType::f32 ? "float" : dtype == DType::bf16 ? "BFloat16" : "Float16";
}

// Reads back as the same bits.
std::string literal(float x) {
  if (std::isnan(x)) return "__int_as_float(0x7fffffff)";
  if (std::isinf(x)) return x < 0 ? "__int_as_float(0xff800000)" : "__int_as_float(0x7f800000)";
  std::string text = fmt::format("{}", x);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + "f";
}

std::string_view function_of(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::relu6:
      return "Relu6";
    case ActivationKind::sigmoid:
      return "Sigmoid";
    case ActivationKind::hard_sigmoid:
      return "HardSigmoid";
    case ActivationKind::hard_swish:
      return "HardSwish";
    case ActivationKind::gelu:
      return "Gelu";
    case ActivationKind::tanh:
      return "Tanh";
    case ActivationKind::exp:
      return "Exp";
    case ActivationKind::sqrt:
      return "Sqrt";
    case ActivationKind::exp_capped:
      return "ExpCapped";
  }
  return "";
}

// The functions are those of the operators' own kernels (gpu/kernels/activation.h).
std::string expression(const Pointwise::Step& step, const std::string& a, const std::string& b) {
  switch (step.code) {
    case Code::add:
      return fmt::format("add({}, {})", a, b);
    case Code::mul:
      return fmt::format("multiply({}, {})", a, b);
    case Code::scale:
      return fmt::format("multiply({}, {})", literal(step.factor), a);
    case Code::silu:
      return fmt::format("SiluOf()({})", a);
    case Code::silu_grad:
      return fmt::format("SiluGradOf()({}, {})", a, b);
    case Code::relu:
      return fmt::format("ReluOf()({})", a);
    case Code::relu_grad:
      return fmt::format("ReluGradOf()({}, {})", a, b);
    case Code::activation:
      return fmt::format("{}Of()({})", function_of(step.kind), a);
    case Code::activation_grad:
      return fmt::format("{}GradOf()({}, {})", function_of(step.kind), a, b);
  }
  return "";
}

// Up to four operators by name, then how many more there are.
std::string chain_name(const Pointwise& op) {
  constexpr std::size_t named = 4;
  std::string name = "pointwise";
  for (std::size_t s = 0; s < std::min(op.steps.size(), named); ++s)
    name += "_" + name_of(op.steps[s]);
  if (op.steps.size() > named) name += fmt::format("_and_{}_more", op.steps.size() - named);
  return name;
}

// The 32 bits that a name can do with.
std::uint32_t digest(std::string_view text) { return static_cast<std::uint32_t>(fnv1a(text)); }

class Writer {
 public:
  Writer(const Pointwise& op, Types in, const Shape& shape) : op_(op), in_(in), loops_(shape, in) {
    for (std::size_t i = 0; i < in.size(); ++i) broadcasts_ |= !loops_.is_whole(i);
    elements_ = std::min(suitable_elements(), longest_run());
    index_ = !broadcasts_ || shape.numel() > std::numeric_limits<std::int32_t>::max()
                 ? "unsigned long long"
                 : "unsigned";
  }

  PointwiseSource write() {
    PointwiseSource source{.threads = threads, .block_elements = threads * elements_};
    for (std::size_t i = 0; i < in_.size(); ++i)
      source.alignment.push_back(is_splat(i) ? size_of(in_[i].dtype) : pack_bytes(in_[i].dtype));
    for (const Pointwise::Result& result : op_.results)
      source.alignment.push_back(pack_bytes(result.dtype));
    write_chain();
    for (std::size_t i = 0; i < in_.size(); ++i)
      if (!loops_.is_whole(i)) write_source_of(i);
    const std::string before = std::move(text_);
    text_.clear();
    write_body();
    source.name = fmt::format("{}_{:08x}", chain_name(op_), digest(before + text_));
    source.code = fmt::format("{}{}{}", before, signature(source.name), text_);
    return source;
  }

 private:
  template <class... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    text_ += fmt::format(format, std::forward<Arguments>(arguments)...) + "\n";
  }

  // As many as make 16 bytes of the narrowest type, unless what is read at once would fill too many
  // registers.
  int suitable_elements() const {
    constexpr std::size_t most_registers = 64;
    std::size_t narrowest = sizeof(float);
    for (const TensorType& type : in_) narrowest = std::min(narrowest, size_of(type.dtype));
    for (const Pointwise::Result& result : op_.results)
      narrowest = std::min(narrowest, size_of(result.dtype));
    std::size_t bytes = 0;  // an element of all operands
    for (const TensorType& type : in_) bytes += size_of(type.dtype);
    std::size_t elements = 16 / narrowest;
    while (elements > 2 && elements * bytes / 4 > most_registers) elements /= 2;
    return static_cast<int>(elements);
  }

  // The greatest power of two of which the innermost loop's extent is a multiple, up to 8: no pack
  // may begin in one run of a loop and end in another.
  int longest_run() const {
    int run = 8;
    if (broadcasts_)
      while (loops_.extents.back() % run != 0) run /= 2;
    return run;
  }

  // Whether all elements of a pack are one element of the operand.
  bool is_splat(std::size_t operand) const {
    return !loops_.is_whole(operand) && !loops_.moves[operand].back();
  }
  std::size_t pack_bytes(DType dtype) const {
    return std::min<std::size_t>(16, static_cast<std::size_t>(elements_) * size_of(dtype));
  }

  std::string register_name(std::size_t value) const {
    return value < in_.size() ? fmt::format("x{}", value) : fmt::format("v{}", value);
  }

  // The chain on one element.
  void write_chain() {
    line("#include \"ridge/gpu/device/runtime.h\"");
    line("#include \"ridge/gpu/kernels/activation.h\"");
    line("");
    line("using namespace ridge;");
    line("using namespace ridge::gpu;");
    line("using Index = {};", index_);
    line("");
    line("// One element of the chain.");
    std::string parameters;
    for (std::size_t i = 0; i < in_.size(); ++i) parameters += fmt::format("float x{}, ", i);
    for (std::size_t r = 0; r < op_.results.size(); ++r)
      parameters += fmt::format("float& y{}{}", r, r + 1 < op_.results.size() ? ", " : "");
    line("__device__ inline void chain({}) {{", parameters);
    for (std::size_t s = 0; s < op_.steps.size(); ++s)
      line("  const float {} = {};", register_name(in_.size() + s),
           expression(op_.steps[s], register_name(op_.steps[s].a), register_name(op_.steps[s].b)));
    for (std::size_t r = 0; r < op_.results.size(); ++r)
      line("  y{} = {};", r, register_name(op_.results[r].value));
    line("}}");
    line("");
  }

  // The function that finds an operand's element: of the quotients and remainders of the result's
  // by the loops' extents, those of the loops that the operand moves along.
  void write_source_of(std::size_t operand) {
    std::string sum;
    std::int64_t inner = 1, stride = 1;
    for (std::size_t l = loops_.extents.size(); l-- > 0;) {
      const std::int64_t extent = loops_.extents[l];
      if (loops_.moves[operand][l]) {
        std::string term = inner == 1 ? "i" : fmt::format("i / {}u", inner);
        if (l > 0) term += fmt::format(" % {}u", extent);
        if (stride != 1) term += fmt::format(" * {}u", stride);
        sum = sum.empty() ? term : term + " + " + sum;
        stride *= extent;
      }
      inner *= extent;
    }
    line("// Where the element of x{} is that element i of the results comes from.", operand);
    line("__device__ inline Index source_of_x{}(Index i) {{ return {}; }}", operand,
         sum.empty() ? "0" : sum);
    line("");
  }

  std::string signature(const std::string& name) const {
    std::string text = fmt::format(
        "extern \"C\" __global__ void __launch_bounds__({})\n{}(unsigned long long n, bool packed",
        threads, name);
    for (std::size_t i = 0; i < in_.size(); ++i)
      text += fmt::format(",\n    const {}* x{}", type_name(in_[i].dtype), i);
    for (std::size_t r = 0; r < op_.results.size(); ++r)
      text += fmt::format(",\n    {}* y{}", type_name(op_.results[r].dtype), r);
    return text + ") {\n";
  }

  // "x1 + source_of_x1(i)", of element i of the results.
  std::string address(std::size_t operand, std::string_view i) const {
    return loops_.is_whole(operand) ? fmt::format("x{} + {}", operand, i)
                                    : fmt::format("x{0} + source_of_x{0}({1})", operand, i);
  }

  void write_body() {
    line("  begin_kernel();");
    line("  const Index block = Index{{blockIdx.x}} * {0}u, end = block + {0}u;",
         threads * elements_);
    line("  if (packed && end <= n) {{");
    write_packs();
    line("  }} else {{");
    write_elements();
    line("  }}");
    line("}}");
  }

  // All reads before the first use, so that they are on their way at once.
  void write_packs() {
    line("    const Index first = block + threadIdx.x * {}u;", elements_);
    std::string arguments;
    for (std::size_t i = 0; i < in_.size(); ++i) {
      if (is_splat(i))
        line("    const float a{} = widened(*({}));", i, address(i, "first"));
      else
        line("    const auto a{} = load_pack<{}>({});", i, elements_, address(i, "first"));
      arguments += is_splat(i) ? fmt::format("a{}, ", i) : fmt::format("widened(a{}.at[k]), ", i);
    }
    for (std::size_t r = 0; r < op_.results.size(); ++r)
      line("    Pack<{}, {}> b{};", type_name(op_.results[r].dtype), elements_, r);
    line("#pragma unroll");
    line("    for (int k = 0; k < {}; ++k) {{", elements_);
    write_call("      ", arguments);
    for (std::size_t r = 0; r < op_.results.size(); ++r)
      line("      round_to(&b{0}.at[k], y{0}_k);", r);
    line("    }}");
    for (std::size_t r = 0; r < op_.results.size(); ++r)
      line("    store_pack<{0}>(y{1} + first, b{1});", elements_, r);
  }

  // The loop of the last block, and of operands that are aligned to their elements only.
  void write_elements() {
    line("    for (Index i = block + threadIdx.x; i < end && i < n; i += {}u) {{", threads);
    std::string arguments;
    for (std::size_t i = 0; i < in_.size(); ++i)
      arguments += fmt::format("widened(*({})), ", address(i, "i"));
    write_call("      ", arguments);
    for (std::size_t r = 0; r < op_.results.size(); ++r)
      line("      round_to(y{0} + i, y{0}_k);", r);
    line("    }}");
  }

  // Declares what the chain gives for one element and calls it.
  void write_call(std::string_view indent, const std::string& arguments) {
    std::string values, results;
    for (std::size_t r = 0; r < op_.results.size(); ++r) {
      const std::string_view comma = r + 1 < op_.results.size() ? ", " : "";
      values += fmt::format("y{}_k{}", r, comma);
      results += fmt::format("y{}_k{}", r, comma);
    }
    line("{}float {};", indent, values);
    line("{}chain({}{});", indent, arguments, results);
  }

  const Pointwise& op_;
  Types in_;
  BroadcastLoops loops_;
  int elements_ = 0;  // consecutive ones that a thread computes
  bool broadcasts_ = false;
  std::string_view index_;  // the type that counts elements
  std::string text_;
};

}  // namespace

PointwiseSource pointwise_source(const Pointwise& op, Types in, const Shape& shape) {
  return Writer(op, in, shape).write();
}

}  // namespace ridge::gpu

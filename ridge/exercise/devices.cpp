#include "ridge/exercise/devices.h"

#include <utility>
#include <variant>

#include "ridge/ops/op.h"

namespace ridge {
namespace {

template <class T>
KernelPtr naive_product(std::int64_t rows, std::int64_t columns, std::int64_t inner) {
  return make_kernel([=](const Launch& call) {
    const T* x = call.in<T>(0);
    const T* weight = call.in<T>(1);
    T* y = call.out<T>();
    for (std::int64_t j = 0; j < columns; ++j)
      for (std::int64_t i = 0; i < rows; ++i) {
        float sum = 0;
        for (std::int64_t k = 0; k < inner; ++k)
          sum += static_cast<float>(x[i * inner + k]) * static_cast<float>(weight[j * inner + k]);
        y[i * columns + j] = static_cast<T>(sum);
      }
  });
}

// A launch whose operands are its own: the caller's may be others by the time it runs.
struct OwnedLaunch {
  explicit OwnedLaunch(const Launch& call)
      : inputs(call.inputs.begin(), call.inputs.end()),
        outputs(call.outputs.begin(), call.outputs.end()),
        workspace(call.workspace) {}

  Launch launch() const { return {inputs, outputs, workspace}; }

  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  void* workspace;
};

}  // namespace

PreparedKernel NaiveProductDevice::prepare(const Op& op, Types in, Types out,
                                           const KernelChoice& choice) {
  const auto* product = std::get_if<MatMul>(&op.variant());
  const bool is_layer = product && *product == MatMul{.trans_b = true} && in[1].shape.rank() == 2 &&
                        in[1].shape[0] == outputs_;
  if (!is_layer) return WrappedDevice::prepare(op, in, out, choice);
  ++replaced_;
  const std::int64_t rows = in[0].shape[0], inner = in[0].shape[1];
  const bool wide = out[0].dtype == DType::f32;
  return {.kernel = wide ? naive_product<float>(rows, outputs_, inner)
                         : naive_product<BFloat16>(rows, outputs_, inner)};
}

QueuedDevice::QueuedDevice(Device& inner) : WrappedDevice(inner), worker_([this] { work(); }) {}

QueuedDevice::~QueuedDevice() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  worker_.join();
}

PreparedKernel QueuedDevice::prepare(const Op& op, Types in, Types out,
                                     const KernelChoice& choice) {
  PreparedKernel prepared = WrappedDevice::prepare(op, in, out, choice);
  if (!prepared.kernel) return prepared;
  const std::shared_ptr<const Kernel> kernel = std::move(prepared.kernel);
  prepared.kernel = make_kernel([this, kernel](const Launch& call) {
    enqueue([kernel, owned = OwnedLaunch(call)] { kernel->launch(owned.launch()); });
  });
  return prepared;
}

void QueuedDevice::deallocate(void* memory, std::size_t bytes) {
  drain();
  WrappedDevice::deallocate(memory, bytes);
}

void QueuedDevice::upload(void* device, const void* host, std::size_t bytes) {
  drain();
  WrappedDevice::upload(device, host, bytes);
}

void QueuedDevice::download(void* host, const void* device, std::size_t bytes) {
  drain();
  WrappedDevice::download(host, device, bytes);
}

void QueuedDevice::clear(void* device, std::size_t bytes) {
  drain();
  WrappedDevice::clear(device, bytes);
}

void QueuedDevice::download_later(void* host, const void* device, std::size_t bytes) {
  download(host, device, bytes);
}

void QueuedDevice::mark(std::size_t slot) {
  if (marks_.size() <= slot) marks_.resize(slot + 1);
  marks_[slot] = Clock::now() - waited_;
}

double QueuedDevice::seconds_between(std::size_t from, std::size_t to) const {
  return std::chrono::duration<double>(marks_.at(to) - marks_.at(from)).count();
}

void QueuedDevice::synchronize() {
  drain();
  WrappedDevice::synchronize();
}

void QueuedDevice::enqueue(Task task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void QueuedDevice::drain() {
  const auto begin = Clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return tasks_.empty(); });
  waited_ += Clock::now() - begin;
}

// A task leaves the queue when it is done, so that an empty queue means that nothing runs.
void QueuedDevice::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    Task& task = tasks_.front();  // stays where it is while others are appended
    lock.unlock();
    task();
    lock.lock();
    tasks_.pop_front();
    if (tasks_.empty()) changed_.notify_all();
  }
}

}  // namespace ridge

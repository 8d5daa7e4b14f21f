#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace ridge {

enum class Split : std::uint8_t { train, validation };

// The data of a workload. Nothing is remembered between calls that a caller could notice: a batch
// is a function of its split and number alone, so that a run that goes on from a checkpoint needs
// only the number of batches done to see what an undisturbed one would.
class Batches {
 public:
  virtual ~Batches() = default;

  // Fills the input and the targets of batch number `index`, as the model's input and targets have
  // them.
  virtual void fill(Split split, std::uint64_t index, std::span<std::byte> input,
                    std::span<std::byte> targets) = 0;

  // Whether every batch is the same, so that it need be written to the device only once.
  virtual bool always_same() const { return false; }
  // Samples of validation until the first one comes again; none if they never do.
  virtual std::optional<std::int64_t> validation_samples() const { return std::nullopt; }
  // Whether targets are labels, so that the share of right ones says something.
  virtual bool has_labels() const { return false; }

  virtual std::string description() const = 0;  // one line for people
};

// What one rank sees of batches that several share: of every `ranks` in a row, which are the parts
// of one batch of the run, the one of its own number.
class BatchesOfRank final : public Batches {
 public:
  BatchesOfRank(std::unique_ptr<Batches> parts, int rank, int ranks)
      : parts_(std::move(parts)),
        rank_(static_cast<std::uint64_t>(rank)),
        ranks_(static_cast<std::uint64_t>(ranks)) {}

  void fill(Split split, std::uint64_t index, std::span<std::byte> input,
            std::span<std::byte> targets) override {
    parts_->fill(split, index * ranks_ + rank_, input, targets);
  }
  bool always_same() const override { return parts_->always_same(); }
  std::optional<std::int64_t> validation_samples() const override {
    return parts_->validation_samples();
  }
  bool has_labels() const override { return parts_->has_labels(); }
  std::string description() const override { return parts_->description(); }

 private:
  std::unique_ptr<Batches> parts_;
  std::uint64_t rank_, ranks_;
};

}  // namespace ridge

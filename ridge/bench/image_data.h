#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace ridge {

// Small images with labels, from a safetensors file: "images", U8 or F32 [count, rows, columns] or
// [count, channels, rows, columns] with 1 or 3 channels, and "labels", an integer for each image,
// counted from 0. Pixels are normalised to mean 0 and deviation 1 over the file. A fifth of the
// images, drawn by the seed, is held out of training.
class ImageData {
 public:
  enum class Split : std::uint8_t { train, held_out };

  // FormatError for a file that is not so.
  ImageData(const std::filesystem::path& path, std::uint64_t seed);

  std::int64_t size(Split split) const { return static_cast<std::int64_t>(of(split).size()); }
  std::int64_t classes() const { return classes_; }  // one more than the highest label

  // Images number `first` and the following of a split, as many as there are labels, scaled
  // bilinearly to [3, size, size] each. Those of training come in another order in each epoch;
  // after the last one held out the first comes again.
  void batch(Split split, std::int64_t first, std::int64_t size, std::span<float> images,
             std::span<std::int32_t> labels);

 private:
  const std::vector<std::int64_t>& of(Split split) const {
    return split == Split::train ? train_ : held_out_;
  }
  std::int64_t image_at(Split split, std::int64_t place);
  void scale(std::int64_t image, std::int64_t size, float* to) const;

  std::int64_t channels_ = 1, rows_ = 0, columns_ = 0, classes_ = 0;
  std::vector<float> pixels_;
  std::vector<std::int32_t> labels_;
  std::vector<std::int64_t> train_, held_out_;  // numbers of images
  std::vector<std::int64_t> order_;             // of those to train on, in the current epoch
  std::int64_t epoch_ = -1;
  std::uint64_t seed_;
};

}  // namespace ridge

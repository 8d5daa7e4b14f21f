#pragma once

// Images with labels, to train vision networks on and to measure their accuracy.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ridge/base/thread_pool.h"
#include "ridge/session/batches.h"

namespace ridge {

// Images by number, each with a label counted from 0.
class ImageSet {
 public:
  virtual ~ImageSet() = default;

  std::int64_t count() const { return static_cast<std::int64_t>(labels_.size()); }
  std::int64_t classes() const { return classes_; }
  std::int32_t label(std::int64_t image) const { return labels_[static_cast<std::size_t>(image)]; }
  // Writes image number `image`, normalized and scaled to f32 [3, size, size]. Several threads may
  // call it at once.
  virtual void scaled(std::int64_t image, std::int64_t size, float* to) const = 0;
  virtual std::string description() const = 0;  // one line for people

 protected:
  std::vector<std::int32_t> labels_;
  std::int64_t classes_ = 0;
};

// The images of a path, a folder or a file; IoError or FormatError, naming the file, for one that
// is not as follows.
//   A folder has a folder of PNG and JPEG files for each class; the classes are numbered in the
//   order of their folders' names. Of each image the largest square in the middle is taken, and
//   normalized by the mean and deviation of ImageNet's channels. A safetensors file has "images",
//   U8 or F32 [count, rows, columns] or [count, channels, rows, columns] with 1 or 3 channels, and
//   "labels", an integer for each image. Pixels are normalized to mean 0 and deviation 1 over the
//   file.
std::unique_ptr<ImageSet> open_images(const std::filesystem::path& path);

// How many classes the images of a path have, without decoding any; the same errors.
std::int64_t classes_of_images(const std::filesystem::path& path);

// A set of images in batches. A part of them, drawn by the seed, is held out for validation; the
// others come in another order in each epoch.
class ImageData {
 public:
  // `validation_fraction` in [0, 0.5] is the part held out, about; of 1 all images are in both
  // splits. FormatError if a requested split would be empty, or for fewer than two classes.
  ImageData(std::unique_ptr<ImageSet> images, std::uint64_t seed, double validation_fraction = 0.2);

  const ImageSet& images() const { return *images_; }
  std::int64_t size(Split split) const { return static_cast<std::int64_t>(of(split).size()); }
  std::int64_t classes() const { return images_->classes(); }

  // Images number `first` and the following of a split, as many as there are labels, scaled to
  // [3, size, size] each. After the last one the first comes again.
  void batch(Split split, std::int64_t first, std::int64_t size, std::span<float> images,
             std::span<std::int32_t> labels);

 private:
  const std::vector<std::int64_t>& of(Split split) const {
    return split == Split::train ? train_ : validation_;
  }
  std::int64_t image_at(Split split, std::int64_t place);

  std::unique_ptr<ImageSet> images_;
  std::vector<std::int64_t> train_, validation_;  // numbers of images
  std::vector<std::int64_t> order_;               // of those to train on, in the current epoch
  std::int64_t epoch_ = -1;
  std::uint64_t seed_;
  ThreadPool pool_;
};

// Scales an image of so many rows and columns, `planes` planes of T one after another, to
// [3, size, size], bilinearly with a triangle as wide as the larger of a pixel before and after, as
// Pillow and torchvision's antialiased resizing do. One plane becomes all three. Values become
// (x - shift) * factor of their plane.
struct PlanarImage {
  std::int64_t planes = 1, rows = 0, columns = 0;
  std::int64_t plane_stride = 0, row_stride = 0, pixel_stride = 1;  // in elements
};
template <class T>
void scale_image(const T* pixels, const PlanarImage& from, std::int64_t size,
                 std::span<const float> shift, std::span<const float> factor, float* to);

}  // namespace ridge

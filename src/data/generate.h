// A synthetic image classification set that can be learned: the built-in data of the quickstart, and of
// tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/classification_set.h"
#include "data/writer.h"

namespace lockstep::data {

/// A class is a smooth random pattern; a sample is its class's pattern, shifted and with random contrast,
/// under part of another class's pattern and noise. Integer and IEEE arithmetic alone: the same bytes on
/// every machine.
struct GenerateOptions {
  int64_t num_samples = 12000;  ///< as even as possible over the classes
  int64_t classes = 10;
  int64_t size = 28;  ///< height and width
  int64_t channels = 1;
  uint64_t seed = 1;  ///< of the patterns and the samples
  bool eval = false;  ///< other samples of the same classes, to evaluate on
  bool compress = false;
};

class Generator {
 public:
  /// Throws UserError naming the option that makes no sense.
  explicit Generator(const GenerateOptions& options);
  int64_t label(uint64_t sample) const { return static_cast<int64_t>(sample) % options_.classes; }
  /// u8 [size, size, channels].
  void image(uint64_t sample, uint8_t* out);

 private:
  GenerateOptions options_;
  std::vector<float> patterns_;  ///< [classes, channels, size, size], -1 to 1, periodic
};

/// Writes the set to `path` (ClassificationWriter); does nothing where it exists and is to be kept. Throws
/// UserError.
void generate_file(const std::string& path, const GenerateOptions& options, const std::string& made_by,
                   IfExists if_exists = IfExists::refuse, const OnProgress& progress = {});

}  // namespace lockstep::data

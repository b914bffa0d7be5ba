// Finds damage in a data file.
#pragma once

#include <string>
#include <vector>

#include "data/classification_set.h"

namespace lockstep::data {

/// One line for each damaged part, naming its rows or chunk: chunks whose checksum or stream is wrong, rows
/// that do not match /checksums, a content hash that does not match content_xxh3, a mean or std that training
/// refuses. Empty: every image and label was read and is what was written (as far as the file holds
/// checksums). At most `limit` lines.
std::vector<std::string> find_damage(const ClassificationSet& set, size_t limit = 20,
                                     const OnProgress& progress = {});

}  // namespace lockstep::data

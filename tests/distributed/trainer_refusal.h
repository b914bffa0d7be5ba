// What every refusal has in common.
#pragma once

#include "trainer_driver.h"

namespace lockstep::e2e {

/// A job that runs; later options overrule it.
inline const std::string kGood =
    "--data.train train.h5 --batch.micro 4 --batch.global 32 --train.steps 3 --run.dir run ";

class Refusal : public TrainerTest {
 protected:
  /// Exit code 2, one message that matches each of the regular expressions, and no file more or less than
  /// before.
  void expect_refusal(const std::string& command, const std::vector<std::string>& said) const {
    SCOPED_TRACE(command);
    const std::set<std::string> before = listing();
    const Outcome o = run(command);
    EXPECT_EQ(o.code, 2) << o.text;
    for (const std::string& regex : said) EXPECT_THAT(o.text, testing::ContainsRegex(regex));
    EXPECT_EQ(count(o.text, "error: "), 1) << o.text;
    EXPECT_EQ(count(o.text, "MPI_ABORT"), 0) << o.text;
    EXPECT_EQ(listing(), before);
  }
};

}  // namespace lockstep::e2e

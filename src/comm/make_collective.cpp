#include "comm/collective.h"
#include "comm/mpi_exact.h"
#include "comm/mpi_fast.h"
#include "comm/self.h"
#include "comm/worker.h"
#include "comm/world.h"

namespace lockstep::comm {

std::unique_ptr<Collective> make_collective(World& world, const CollectiveOptions& options) {
  if (world.size() == 1) return std::make_unique<Self>();
  std::unique_ptr<Algorithm> algorithm;
  if (options.reduction == Reduction::exact)
    algorithm = std::make_unique<MpiExact>(world, options);
  else
    algorithm = std::make_unique<MpiFast>(world, options);
  return std::make_unique<Worker>(std::move(algorithm), world.rank(), world.size());
}

}  // namespace lockstep::comm

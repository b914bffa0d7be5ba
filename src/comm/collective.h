// Collective operations over all devices of a run: asynchronous, in place, in submission order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/dtype.h"

namespace lockstep::comm {

class World;
class Collective;

/// exact: sums in one fixed binary tree over devices, ((0+1)+(2+3))+..., the same bits however devices are
/// laid out. fast: the order is the library's.
enum class Reduction { exact, fast };

struct CollectiveOptions {
  Reduction reduction = Reduction::exact;
  double timeout = 300;  ///< seconds without progress after which an operation fails
  /// Between ranks of one host; off in tests and benchmarks of the messages alone.
  bool shared_memory = true;
  /// bf16 or f16: all_reduce may be asked to cross between ranks in half precision. f32: never. Not with
  /// `exact`.
  Dtype compress = Dtype::f32;
  /// For tests: so many ranks share memory at most, as if the others were on another host.
  int max_neighbours = 1 << 30;
};

/// One submitted operation; copyable, never owns anything, and must not outlive its Collective.
class Handle {
 public:
  Handle() = default;  ///< of nothing: done
  Handle(Collective* collective, uint64_t ticket) : collective_(collective), ticket_(ticket) {}
  /// Blocks until the operation is complete. Rethrows the failure that stopped it.
  void wait() const;
  bool done() const;

 private:
  Collective* collective_ = nullptr;
  uint64_t ticket_ = 0;
};

/// A contiguous range of elements.
struct Slice {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
};

/// One operation as an implementation sees it.
struct Operation {
  enum class Kind : uint8_t { all_reduce, reduce, reduce_scatter, all_gather, broadcast, barrier };
  Kind kind = Kind::barrier;
  Dtype dtype = Dtype::f32;
  Dtype wire = dtype;  ///< what crosses between ranks
  int root = 0;
  void* data = nullptr;
  size_t count = 0;  ///< elements of data
  size_t bytes() const { return count * size_of(dtype); }
  bool compressed() const { return wire != dtype; }
};
const char* name_of(Operation::Kind kind);

/// Every device submits the same operations, with the same sizes, in the same order. A buffer belongs to the
/// operation until its handle is done. After a failure every unfinished and every later wait() throws it.
/// Destroying a Collective abandons what is unfinished, so wait first. Steady state allocates nothing.
///
/// Submitting is for one thread at a time; waiting and abort() for any.
class Collective {
 public:
  virtual ~Collective() = default;

  virtual int device() const = 0;
  virtual int num_devices() const = 0;

  /// Sums over devices; each device ends with the same bits. Any count, 0 included. NaN and Inf propagate.
  ///
  /// `wire` bf16 or f16 halves what crosses between ranks, for gradients that bear it; it takes
  /// CollectiveOptions::compress. Each rank's contribution (the fp32 sum of its devices) is rounded once, to
  /// nearest even; the ranks' contributions are summed in fp32, in tree order over ranks; the sum is rounded
  /// once. In f16 what lies beyond 65504 becomes Inf on all devices. One rank rounds nothing.
  Handle all_reduce(std::span<float> x, Dtype wire = Dtype::f32) {
    return submit(Operation::Kind::all_reduce, x, 0, wire);
  }
  Handle all_reduce(std::span<double> x) { return submit(Operation::Kind::all_reduce, x); }
  /// As all_reduce, but only device `root` ends with the sum; elsewhere the buffer is undefined afterwards.
  Handle reduce(std::span<float> x, int root) { return submit(Operation::Kind::reduce, x, root); }
  /// As all_reduce, but only slice(x.size(), device()) is the sum afterwards; the rest is undefined.
  Handle reduce_scatter(std::span<float> x) { return submit(Operation::Kind::reduce_scatter, x); }
  /// Each device gives slice(x.size(), device()); all end with the whole.
  Handle all_gather(std::span<float> x) { return submit(Operation::Kind::all_gather, x); }
  Handle broadcast(std::span<float> x, int root) { return submit(Operation::Kind::broadcast, x, root); }
  /// Done when every device has reached it.
  Handle barrier() { return submit(Operation::Kind::barrier, std::span<float>()); }

  /// The elements of a buffer of `count` that `device` owns; the slices of all devices partition the buffer,
  /// their order is the implementation's.
  virtual Slice slice(size_t count, int device) const = 0;

  /// Gives up: unfinished and later operations throw ClusterError. Local; the other devices run into their
  /// timeout.
  virtual void abort() = 0;

 protected:
  friend class Handle;
  virtual uint64_t submit(const Operation& operation) = 0;
  virtual void wait(uint64_t ticket) = 0;
  virtual bool done(uint64_t ticket) const = 0;

 private:
  template <class T>
  static constexpr Dtype dtype_of = sizeof(T) == 4 ? Dtype::f32 : Dtype::f64;
  template <class T>
  Handle submit(Operation::Kind kind, std::span<T> x, int root = 0, Dtype wire = dtype_of<T>) {
    return {this, submit(Operation{kind, dtype_of<T>, wire, root, x.data(), x.size()})};
  }
};

inline void Handle::wait() const {
  if (collective_) collective_->wait(ticket_);
}
inline bool Handle::done() const { return !collective_ || collective_->done(ticket_); }

/// For all ranks together: the collectives of this rank's devices, `replicas` of them on every rank, each for
/// a thread of its own. Device rank * replicas + i is the i-th. The World must outlive them; they go
/// together. Throws UserError on every rank when `exact` is asked of a number of devices that is no power of
/// two, or together with `compress`.
std::vector<std::unique_ptr<Collective>> make_collectives(World& world, int replicas,
                                                          const CollectiveOptions& options = {});
/// The same for one device a rank.
std::unique_ptr<Collective> make_collective(World& world, const CollectiveOptions& options = {});

}  // namespace lockstep::comm

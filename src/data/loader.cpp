#include "data/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/huge_buffer.h"

namespace lockstep::data {
namespace {

constexpr size_t kAlign = 64;
size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

/// One micro-batch of the ring.
struct Slot {
  float* images = nullptr;
  int32_t* labels = nullptr;
  uint64_t* rows = nullptr;
  nn::Batch batch;
  Cursor cursor;
  int64_t shard = 0;
  int64_t sequence = -1;     // which micro-batch since the last seek
  int64_t blocks_left = 0;   // 0: ready
  std::exception_ptr error;  // the first one of its blocks
};

/// What one thread reuses.
struct Worker {
  std::vector<uint8_t> image;
  Transform::Scratch scratch;
};

}  // namespace

// Micro-batches are numbered 0, 1, ... since the last seek; number q lives in slot q % ring. A micro-batch is
// split in blocks of samples which workers claim in order, so that all of them hurry the one that is needed
// first.
struct Loader::Impl {
  Impl(const ClassificationSet& s, const Order& o, const TransformOptions& t, const LoaderOptions& l);
  ~Impl();

  void allocate();
  void open(int64_t sequence);
  void decode(Slot& slot, int64_t block, Worker& worker) const;
  void work(std::stop_token stop, Worker& worker);
  void restart(Cursor cursor);
  Slot& slot(int64_t sequence) {
    return slots[static_cast<size_t>(sequence % static_cast<int64_t>(slots.size()))];
  }
  int64_t blocks_of(const Slot& slot) const {
    return std::max<int64_t>((slot.batch.count + block_samples - 1) / block_samples, 1);
  }

  const ClassificationSet& set;
  const Order order;
  const LoaderOptions options;
  const Transform transform;
  int64_t sample_floats = 0, block_samples = 1;
  HugeBuffer memory;
  std::vector<Slot> slots;
  std::vector<Worker> workers;  // one a thread; with no threads one, of next()

  std::mutex mutex;
  std::condition_variable_any to_do;
  std::condition_variable ready;
  Cursor base;                        // of micro-batch 0
  int64_t end = 0;                    // number of micro-batches; of a training run without bound
  int64_t limit = 0;                  // micro-batches below it may be decoded: their slots are free
  int64_t claim = 0;                  // the micro-batch whose blocks are given out
  int64_t claim_block = 0;            // the next block of it
  int64_t in_flight = 0;              // blocks being decoded
  int64_t current = -1;               // the micro-batch that the caller holds
  std::vector<std::jthread> threads;  // last: they use all of the above
};

Loader::Impl::Impl(const ClassificationSet& s, const Order& o, const TransformOptions& t,
                   const LoaderOptions& l)
    : set(s), order(o), options(l), transform(t, s.image(), s.mean(), s.std(), l.train, o.seed) {
  if (l.micro_batch < 1 || l.num_shards < 1 || l.first_shard < 0 || l.prefetch < 0 || l.threads < 0 ||
      l.first_shard + l.num_shards > l.shards_per_step ||
      l.micro_batch * l.shards_per_step != o.global_batch || o.num_samples != s.num_samples())
    throw std::invalid_argument("Loader: options and order do not fit each other");
  if (o.batches_per_epoch() == 0)
    throw UserError(fmt::format("a global batch of '{}' is larger than the '{}' samples of file '{}'",
                                o.global_batch, o.num_samples, s.path()),
                    "with data.drop_last no batch is left", "lower batch.global, or turn data.drop_last off");
  allocate();
  for (int i = 0; i < std::max(l.threads, 1); ++i)
    workers.push_back(
        {std::vector<uint8_t>(static_cast<size_t>(s.image().bytes())), transform.make_scratch()});
  restart({});
  for (int i = 0; i < l.threads; ++i)
    threads.emplace_back([this, i](std::stop_token stop) { work(stop, workers[static_cast<size_t>(i)]); });
}

Loader::Impl::~Impl() {
  for (std::jthread& thread : threads) thread.request_stop();
}

void Loader::Impl::allocate() {
  const size_t m = static_cast<size_t>(options.micro_batch);
  sample_floats = transform.output_shape().count();
  const size_t images = aligned(m * static_cast<size_t>(sample_floats) * sizeof(float));
  const size_t labels = aligned(m * sizeof(int32_t)), rows = aligned(m * sizeof(uint64_t));
  slots.resize(static_cast<size_t>(options.threads > 0 ? options.prefetch + 1 : 1));
  memory = HugeBuffer((images + labels + rows) * slots.size());
  std::byte* at = memory.data();
  for (Slot& slot : slots) {
    slot.images = reinterpret_cast<float*>(at), at += images;
    slot.labels = reinterpret_cast<int32_t*>(at), at += labels;
    slot.rows = reinterpret_cast<uint64_t*>(at), at += rows;
    slot.batch = {.images = slot.images, .labels = slot.labels, .samples = slot.rows};
  }
  // Blocks small enough to share among the workers, large enough that claiming one costs nothing.
  constexpr int64_t kBlockFloats = 16384;
  const int64_t share = options.micro_batch / (4 * std::max(options.threads, 1));
  block_samples = std::clamp<int64_t>(std::max(share, kBlockFloats / sample_floats), 1, options.micro_batch);
}

/// Under the mutex: which samples micro-batch `sequence` holds.
void Loader::Impl::open(int64_t sequence) {
  Slot& s = slot(sequence);
  const int64_t batches = base.batch + sequence / options.num_shards, per_epoch = order.batches_per_epoch();
  s.sequence = sequence;
  s.cursor = {base.epoch + static_cast<uint64_t>(batches / per_epoch), batches % per_epoch};
  s.shard = options.first_shard + sequence % options.num_shards;
  s.batch.count = std::clamp<int64_t>(order.batch_size(s.cursor.batch) - s.shard * options.micro_batch, 0,
                                      options.micro_batch);
  s.blocks_left = blocks_of(s);
  s.error = nullptr;
}

void Loader::Impl::decode(Slot& s, int64_t block, Worker& worker) const {
  const int64_t first = block * block_samples, end_sample = std::min(first + block_samples, s.batch.count);
  const int64_t position = s.cursor.batch * order.global_batch + s.shard * options.micro_batch;
  for (int64_t i = first; i < end_sample; ++i) {
    const uint64_t row = order.row(s.cursor.epoch, static_cast<uint64_t>(position + i));
    s.rows[i] = row;
    s.labels[i] = set.label(row);
    set.read(row, worker.image.data());
    transform.apply(worker.image.data(), s.cursor.epoch, row, s.images + i * sample_floats, worker.scratch);
  }
}

void Loader::Impl::work(std::stop_token stop, Worker& worker) {
  std::unique_lock lock(mutex);
  while (to_do.wait(lock, stop, [this] { return claim < limit; }) && !stop.stop_requested()) {
    if (claim_block == 0) open(claim);
    Slot& s = slot(claim);
    const int64_t block = claim_block++;
    if (claim_block == blocks_of(s)) ++claim, claim_block = 0;
    ++in_flight;
    lock.unlock();
    std::exception_ptr error;
    try {
      decode(s, block, worker);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    --in_flight;
    if (error && !s.error) s.error = error;
    if (--s.blocks_left == 0 || in_flight == 0) ready.notify_all();
  }
}

void Loader::Impl::restart(Cursor cursor) {
  std::unique_lock lock(mutex);
  limit = 0;
  ready.wait(lock, [this] { return in_flight == 0; });
  for (Slot& s : slots) s.sequence = -1;
  base = cursor;
  current = -1;
  claim = claim_block = 0;
  const int64_t left = cursor.epoch > 0 ? 0 : std::max<int64_t>(order.batches_per_epoch() - cursor.batch, 0);
  end = options.train ? INT64_MAX : left * options.num_shards;
  limit = std::min<int64_t>(static_cast<int64_t>(slots.size()), end);
  to_do.notify_all();
}

Loader::Loader(const ClassificationSet& set, const Order& order, const TransformOptions& transforms,
               const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(set, order, transforms, options)) {}

Loader::~Loader() = default;

const nn::Batch* Loader::next() {
  Impl& im = *impl_;
  std::unique_lock lock(im.mutex);
  if (im.current + 1 >= im.end) {
    im.current = im.end;
    return nullptr;
  }
  const int64_t wanted = ++im.current;
  Slot& slot = im.slot(wanted);
  if (im.threads.empty()) {
    im.open(wanted);
    const int64_t blocks = im.blocks_of(slot);
    lock.unlock();
    for (int64_t block = 0; block < blocks; ++block) im.decode(slot, block, im.workers[0]);
  } else {
    im.limit = std::min(wanted + static_cast<int64_t>(im.slots.size()), im.end);
    im.to_do.notify_all();
    im.ready.wait(lock, [&] { return slot.sequence == wanted && slot.blocks_left == 0; });
  }
  if (slot.error) std::rethrow_exception(slot.error);
  return &slot.batch;
}

void Loader::seek(Cursor cursor) { impl_->restart(cursor); }
const Order& Loader::order() const { return impl_->order; }
std::span<std::byte> Loader::memory() const { return impl_->memory.as<std::byte>(); }

}  // namespace lockstep::data

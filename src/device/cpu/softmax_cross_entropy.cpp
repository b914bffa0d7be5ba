#include <algorithm>
#include <cmath>

#include "device/cpu/elementwise.h"

namespace lockstep::device::cpu {

namespace {

// Loss, metrics and, in training, the gradient of the logits in one pass over each row.
class SoftmaxCrossEntropyKernel final : public Kernel {
 public:
  SoftmaxCrossEntropyKernel(const nn::SoftmaxCrossEntropy& op, const nn::Node& node, Lowering& low)
      : op_(op), node_(node), training_(low.training) {
    const Shape& s = low.graph.shape(node.inputs[0]);
    samples_ = s[0], classes_ = s[1];
    const memory::desc md = low.canonical(s);
    x_ = low.convert(low.read(node.inputs[0]), md);
    if (training_) dx_ = {md, low.scratch(md.get_size())};
    losses_slot_ = low.scratch(sizeof(Row) * samples_);
    metrics_ = low.store.statistics().data();
  }
  void lower_backward(Lowering& low) override {
    low.use(dx_);
    low.give_gradient(node_.inputs[0], dx_);
  }
  void bind(const std::vector<Slot>& slots) override {
    x_data_ = reinterpret_cast<float*>(elements(slots, x_).data);
    dx_data_ = reinterpret_cast<float*>(elements(slots, dx_).data);
    rows_ = static_cast<Row*>(slots[losses_slot_].address);
  }
  void forward(const Pass& pass) override {
    const float scale = pass.key.gradient_scale * pass.key.loss_scale;
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < samples_; ++n)
      rows_[n] =
          row(x_data_ + n * classes_, pass.batch.labels[n], pass.batch.weights ? pass.batch.weights[n] : 1.0f,
              scale, training_ ? dx_data_ + n * classes_ : nullptr);
    double loss = 0, weight = 0, samples = 0, top1 = 0, top5 = 0;
    for (int64_t n = 0; n < samples_; ++n) {
      loss += rows_[n].loss, weight += rows_[n].weight, samples += rows_[n].counts;
      top1 += rows_[n].top1, top5 += rows_[n].top5;
    }
    const double all[] = {loss, weight, samples, top1, top5, pass.key.share};
    for (int i = 0; i < 6; ++i) metrics_[i] = static_cast<float>(all[i]);
  }

 private:
  struct Row {
    double loss, weight;
    int32_t counts, top1, top5;
  };

  Row row(const float* x, int32_t label, float weight, float scale, float* dx) const {
    if (label == op_.ignore_index || weight == 0) {  // whatever its logits: zero times infinity is not zero
      if (dx) std::fill_n(dx, classes_, 0.0f);
      return {};
    }
    const float biggest = *std::max_element(x, x + classes_);
    double total = 0, sum_x = 0;
    int64_t above = 0;
    for (int64_t c = 0; c < classes_; ++c) {
      total += std::exp(static_cast<double>(x[c]) - biggest);
      sum_x += x[c];
      above += x[c] > x[label] || (x[c] == x[label] && c < label);
    }
    const double log_total = std::log(total) + biggest;
    const double smooth = op_.label_smoothing, each = smooth / static_cast<double>(classes_);
    double loss = (1 - smooth) * (log_total - x[label]) + smooth * log_total;
    if (each > 0) loss -= each * sum_x;
    if (dx) {
      const double factor = static_cast<double>(weight) * scale;
      for (int64_t c = 0; c < classes_; ++c) {
        const double p = std::exp(x[c] - log_total);
        dx[c] = static_cast<float>(factor * (p - each - (c == label ? 1 - smooth : 0)));
      }
    }
    const bool finite = std::isfinite(loss);  // a NaN compares as no one's superior
    return {weight * loss, weight, 1, finite && above < 1, finite && above < 5};
  }

  const nn::SoftmaxCrossEntropy op_;
  const nn::Node& node_;
  const bool training_;
  int64_t samples_ = 0, classes_ = 0;
  Tensor x_, dx_;
  int losses_slot_ = -1;
  float *x_data_ = nullptr, *dx_data_ = nullptr, *metrics_ = nullptr;
  Row* rows_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> lower(const nn::SoftmaxCrossEntropy& op, const nn::Node& node, Lowering& low) {
  return std::make_unique<SoftmaxCrossEntropyKernel>(op, node, low);
}

}  // namespace lockstep::device::cpu

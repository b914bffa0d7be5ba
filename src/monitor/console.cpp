#include "monitor/console.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/text.h"

namespace lockstep::monitor {

static double share(const PhaseFractions& time, Phase phase) { return time[static_cast<int>(phase)]; }

static std::string lr_text(double lr) {
  return lr == 0 || (lr >= 0.001 && lr < 1000) ? fmt::format("{:.4f}", lr) : fmt::format("{:.1e}", lr);
}

// Waiting that is worth a look: more than a tenth of the step.
static Style wait_style(double fraction) { return fraction > 0.1 ? Style::warn : Style::plain; }

std::string step_line(const StepMetrics& m, const std::string& unit, bool color) {
  const auto label = [&](const char* text) { return styled(text, Style::dim, color); };
  const std::string total = m.steps > 0 ? fmt::format("/{}", m.steps) : "";
  const double data = share(m.time, Phase::data), comm = share(m.time, Phase::exposed_comm);
  std::string line = fmt::format(
      "{} {:>{}}{}  {} {:5.2f}  {} {}  {} {:>7}  {} {:>5}  {:>7} {}/s  {:>6} ms ({} {})  {} {:>7}  {} {}",
      label("step"), m.step, total.empty() ? 6 : total.size() - 1, total, label("epoch"), m.epoch,
      label("loss"),
      styled(fmt::format("{:>6.4f}", m.loss), std::isfinite(m.loss) ? Style::title : Style::bad, color),
      label("lr"), lr_text(m.lr), label("gnorm"),
      std::isnan(m.gradient_norm) ? "nan"
      : m.gradient_norm < 1e6     ? fmt::format("{:.2f}", m.gradient_norm)
                                  : fmt::format("{:.1e}", m.gradient_norm),
      with_commas(std::llround(m.samples_per_second)), unit, fmt::format("{:.1f}", m.step_ms),
      styled(fmt::format("data {:2.0f}%", 100 * data), wait_style(data), color),
      styled(fmt::format("comm {:2.0f}%", 100 * comm), wait_style(comm), color), label("mem"),
      human_bytes(m.device_bytes ? m.device_bytes : m.host_bytes), label("eta"), human_time(m.eta_seconds));
  if (m.loss_scale > 0) line += fmt::format("  scale {:g}", m.loss_scale);
  if (m.skipped_steps > 0)
    line += "  " + styled(fmt::format("skipped {}", m.skipped_steps), Style::warn, color);
  return line;
}

std::string evaluation_line(const EvaluationMetrics& m, bool color) {
  return fmt::format("{} step {}  epoch {:.2f}  top1 {}  top5 {:.2f}%  loss {:.4f}  {} samples in {:.1f} s",
                     styled("eval", Style::good, color), m.step, m.epoch,
                     styled(fmt::format("{:.2f}%", 100 * m.top1), Style::title, color), 100 * m.top5, m.loss,
                     with_commas(m.count), m.seconds);
}

static std::string world_table(const std::vector<WorldRow>& world, bool color) {
  constexpr size_t kShown = 16;
  const bool replicas = std::ranges::any_of(world, [](const WorldRow& w) { return w.replica > 0; });
  std::vector<Row> rows;
  for (size_t i = 0; i < world.size(); ++i) {
    const WorldRow& w = world[i];
    if (world.size() > kShown && i == kShown - 1 && i + 1 < world.size()) {
      rows.push_back({"...", fmt::format("{} more", world.size() - kShown), "", "", ""});
      i = world.size() - 2;
      continue;
    }
    rows.push_back({replicas ? fmt::format("{}.{}", w.rank, w.replica) : fmt::format("{}", w.rank), w.host,
                    w.device, w.cores, fmt::format("{}", w.threads)});
  }
  return table("world", {replicas ? "rank.replica" : "rank", "host", "device", "cores", "threads"}, rows,
               color);
}

static std::string run_length(const Header& h) {
  const std::string minutes = h.minutes > 0 ? fmt::format("{} min", h.minutes) : "";
  if (h.steps == 0) return minutes;
  return fmt::format("{} steps{}", with_commas(h.steps), minutes.empty() ? "" : ", at most " + minutes);
}

std::string header(const Header& h, bool color) {
  std::vector<Row> job;
  for (const JobRow& r : h.job) job.push_back({r.key, r.value, r.origin});
  std::string text = table("job", {"option", "value", "from"}, job, color);
  text += world_table(h.world, color);
  text += key_values("model",
                     {{"name", h.model},
                      {"parameters", fmt::format("{} ({})", with_commas(h.parameters),
                                                 human_bytes(static_cast<uint64_t>(h.parameter_bytes)))}},
                     color);
  text += key_values(
      "batch",
      {{"micro", with_commas(h.micro_batch)},
       {"global", fmt::format("{} ({} shards)", with_commas(h.global_batch), h.shards)},
       {"accumulation", with_commas(h.accumulation)},
       {"epoch", fmt::format("{} samples, {} steps", with_commas(h.samples), with_commas(h.steps_per_epoch))},
       {"run", run_length(h)}},
      color);
  uint64_t total = 0;
  std::vector<std::pair<std::string, std::string>> memory;
  for (auto& [purpose, bytes] : h.memory) {
    memory.emplace_back(purpose, human_bytes(bytes));
    total += bytes;
  }
  memory.emplace_back("together", human_bytes(total));
  return text + key_values("memory", memory, color);
}

std::string final_block(const Summary& s, const std::vector<std::pair<std::string, std::string>>& written,
                        bool color) {
  std::vector<std::pair<std::string, std::string>> rows;
  rows.emplace_back("trained", fmt::format("{} steps, {:.2f} epochs, {} samples", with_commas(s.steps),
                                           s.epochs, with_commas(s.samples)));
  rows.emplace_back("train loss", fmt::format("{:.4f}", s.train_loss));
  if (s.eval)
    rows.emplace_back("evaluation",
                      fmt::format("top1 {:.2f}%  top5 {:.2f}%  loss {:.4f}  {} samples", 100 * s.eval->top1,
                                  100 * s.eval->top5, s.eval->loss, with_commas(s.eval->count)));
  if (s.samples_per_second > 0)
    rows.emplace_back("speed", fmt::format("{} samples/s  step {:.1f} ms median, {:.1f} ms p95",
                                           with_commas(std::llround(s.samples_per_second)), s.step_ms_median,
                                           s.step_ms_p95));
  std::string time;
  for (int i = 0; i < kPhases; ++i)
    time += fmt::format("{}{} {:.0f}%", i ? "  " : "", name_of(static_cast<Phase>(i)), 100 * s.time[i]);
  if (s.samples_per_second > 0) rows.emplace_back("time", time);
  const bool own_memory = s.peak_device_bytes && s.peak_device_bytes != s.peak_host_bytes;
  rows.emplace_back("peak memory", own_memory
                                       ? fmt::format("{} host, {} device", human_bytes(s.peak_host_bytes),
                                                     human_bytes(s.peak_device_bytes))
                                       : human_bytes(s.peak_host_bytes));
  if (s.skipped_steps) rows.emplace_back("skipped", fmt::format("{} steps", with_commas(s.skipped_steps)));
  if (!s.resumed_from.empty()) rows.emplace_back("resumed from", s.resumed_from);
  rows.emplace_back("parameters", fmt::format("xxh3 {}", s.params_hash));
  return key_values("done", rows, color) + key_values("written", written, color);
}

std::string warning(const std::string& text, bool color) {
  return styled("warning:", Style::warn, color) + " " + text;
}

Console::Console(std::FILE* out, ColorMode mode) : out_(out), color_(use_color(mode, fileno(out))) {}

void Console::print(const std::string& text) {
  std::fputs(text.c_str(), out_);
  if (!text.ends_with('\n')) std::fputc('\n', out_);
  std::fflush(out_);
}

}  // namespace lockstep::monitor

// Units of work spread over threads, on PyTorch's own OpenMP pool where it can be had.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <thread>
#include <vector>

namespace deu {

// libgomp's entry point; LLVM's and Intel's OpenMP have it too.
using OmpParallel = void (*)(void (*)(void*), void*, unsigned threads, unsigned flags);
inline OmpParallel omp_parallel = nullptr;

// Units of work in any order, all of them after those of the phase before.
struct Phase {
  int64_t units;
  void (*run)(const void* body, int64_t unit);
  const void* body;
};

// The body must outlive the phase.
template <class Body>
Phase phase(int64_t units, const Body& body) {
  return {units, [](const void* raw, int64_t unit) { (*static_cast<const Body*>(raw))(unit); }, &body};
}

// All phases within one start of the threads: to start them again takes longer than a small phase.  No
// thread waits for one that has not begun, only for units that another is at work on.
inline void in_parallel(int threads, std::initializer_list<Phase> phases) {
  struct Shared {
    std::initializer_list<Phase> phases;
    std::atomic<int64_t> next, done;

    void work() {
      int64_t unit = next.fetch_add(1), from = 0;
      for (const Phase& phase : phases) {
        const int64_t end = from + phase.units;
        if (unit < end)
          while (done.load(std::memory_order_acquire) < from) std::this_thread::yield();
        for (; unit < end; unit = next.fetch_add(1)) {
          phase.run(phase.body, unit - from);
          done.fetch_add(1, std::memory_order_release);
        }
        from = end;
      }
    }
  } shared{phases, {0}, {0}};
  int64_t most = 0;
  for (const Phase& phase : phases) most = phase.units > most ? phase.units : most;
  if (threads > most) threads = static_cast<int>(most);
  if (threads <= 1) return shared.work();
  auto turn = [](void* raw) { static_cast<Shared*>(raw)->work(); };
  if (omp_parallel != nullptr) return omp_parallel(turn, &shared, static_cast<unsigned>(threads), 0);
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads; ++i) helpers.emplace_back(turn, &shared);
  turn(&shared);
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace deu

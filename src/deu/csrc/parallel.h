// Units of work spread over threads, on PyTorch's own OpenMP pool where it can be had.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace deu {

// libgomp's entry point; LLVM's and Intel's OpenMP have it too.
using OmpParallel = void (*)(void (*)(void*), void*, unsigned threads, unsigned flags);
inline OmpParallel omp_parallel = nullptr;

template <class Body>
void parallel_for(int64_t units, int threads, const Body& body) {
  if (threads > units) threads = static_cast<int>(units);
  if (threads <= 1) {
    for (int64_t unit = 0; unit < units; ++unit) body(unit);
    return;
  }
  struct Shared {
    std::atomic<int64_t> next;
    int64_t units;
    const Body* body;
  } shared{{0}, units, &body};
  auto turn = [](void* raw) {
    Shared* s = static_cast<Shared*>(raw);
    for (int64_t unit; (unit = s->next.fetch_add(1)) < s->units;) (*s->body)(unit);
  };
  if (omp_parallel != nullptr) {
    omp_parallel(turn, &shared, static_cast<unsigned>(threads), 0);
    return;
  }
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads; ++i) helpers.emplace_back(turn, &shared);
  turn(&shared);
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace deu

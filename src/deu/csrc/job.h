// What a call consists of: the tensors, the neurons, and how the work is cut.
#pragma once

#include <cstdint>

#include "form.h"
#include "inline.h"

namespace deu {

enum Dtype { FLOAT32 = 0, FLOAT64 = 1, BFLOAT16 = 2, FLOAT16 = 3 };

// A tensor seen as (outer, channels, inner), strides in elements.
struct Layout {
  int64_t outer, channels, inner;
};

struct Strides {
  int64_t outer, channel, inner;
};

// How a neuron's arithmetic is done for tensors of less than float64.
enum Precision {
  SINGLE_CLOSED,  // in float32, f in closed form
  SINGLE,         // in float32, f with all its digits near t = 0
  MEDIUM,         // in float64, to twelve digits
  DOUBLE,         // in float64
};

// One neuron's normal form.
struct Neuron {
  int kind;
  Precision precision;
  double n[NUMBERS];
};

// The neurons beside each other: a row of `stride` of them for each number, with room for whole groups
// of LANES at the end.
constexpr int LANES = 16;

// A unit of work has this many groups of channels that lie next to each other, which fill the lines of a
// cache in 16 bits too; the last unit has what is left besides, if that is less than a group.
constexpr int GROUPS = 2;

DEU_INLINE int64_t blocks_of_groups(int64_t channels) {
  const int64_t blocks = (channels + LANES) / (GROUPS * LANES);
  return blocks < 1 ? 1 : blocks;
}

struct Neurons {
  const double* numbers;
  const unsigned char* kinds;
  const unsigned char* precisions;
  int64_t stride;

  DEU_INLINED Neuron operator[](int64_t i) const {
    Neuron neuron{kinds[i], static_cast<Precision>(precisions[i]), {}};
    for (int k = 0; k < NUMBERS; ++k) neuron.n[k] = numbers[k * stride + i];
    return neuron;
  }
};

// Work on neurons themselves, not on their inputs, is cut into blocks of this many.
constexpr int NEURONS = 64;

// From coefficients to normal forms, and their derivatives where they are asked for.
struct Forming {
  bool continuous;
  bool narrow;  // the tensor is of less than float64
  double eps;
  const double* coefficients;  // a row for each of the five, `stride` apart
  int64_t stride;
  double* numbers;             // as in Neurons
  unsigned char* kinds;
  unsigned char* precisions;
  double (*derivatives)[5 * NUMBERS][NEURONS];  // of each block, a row for each; or null
};

struct Limits {
  bool continuous;
  double sharpness, max_exponent, bound;
};

// Rows are worked on in pieces of at most this many elements, which stay in the first cache; sums in
// float32 never run over more than one piece.  Lines of a channel that are this long are worked on where
// they lie.
constexpr int PIECE = 1024, LONG_LINE = 256;

struct Job {
  Layout layout;
  Strides in, grad, out;
  int dtype;
  Limits limits;
  const void* t;
  const void* g;     // backward only
  void* result;      // y, or the gradient of t
  Neurons neurons, neighbours;  // neighbours: backward with gravitation
  const unsigned char* pulled;  // per channel: does it need its centre, has it a neighbour
  // For each block of positions: sums of t (forward), and over the inputs of each neuron, a row of them
  // for each number (backward).
  double* centres;
  double* sums;
  double* neighbour_sums;
  bool channels_together;       // channels lie next to each other
  // A unit of work is a block of positions (outer × inner) of a block of channels.
  int64_t position_block, position_blocks;
  int64_t channel_block, channel_blocks;

  DEU_INLINED int64_t units() const { return position_blocks * channel_blocks; }
};

}  // namespace deu

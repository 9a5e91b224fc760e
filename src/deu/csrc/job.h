// What a call consists of: the tensors, the neurons, and how the work is cut.
#pragma once

#include <cstdint>

#include "form.h"

namespace deu {

enum Dtype { FLOAT32 = 0, FLOAT64 = 1, BFLOAT16 = 2, FLOAT16 = 3 };

// A tensor seen as (outer, channels, inner), strides in elements.
struct Layout {
  int64_t outer, channels, inner;
};

struct Strides {
  int64_t outer, channel, inner;
};

// One neuron's normal form.  `small`: float32 loses nothing in the closed form of f.  `wide`: it
// loses too much in any form, and float64 is used whatever the tensor's type.
struct Neuron {
  int kind;
  bool small, wide;
  double n[NUMBERS];
};

struct Limits {
  bool continuous;
  double sharpness, max_exponent, bound;
};

// Sums over a neuron's inputs: the gradient of each number of the normal form.
struct Sums {
  double number[NUMBERS];
};

struct Job {
  Layout layout;
  Strides in, grad, out;
  int dtype;
  Limits limits;
  const void* t;
  const void* g;     // backward only
  void* result;      // y, or the gradient of t
  const Neuron* neurons;
  const Neuron* neighbours;   // backward with gravitation, else null
  const unsigned char* pulled;  // per channel: does it need its centre, has it a neighbour
  double* centres;            // forward: sums of t; a row of channels for each block of positions
  Sums* sums;                 // backward: likewise
  Sums* neighbour_sums;
  bool channels_together;     // channels lie next to each other, and a unit of work has all of them
  int64_t position_block;     // positions (outer × inner) a unit of work
  int64_t position_blocks, units;
};

}  // namespace deu

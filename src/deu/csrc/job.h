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
  double* centres;            // forward: sums of t; a row of channels for each unit of work
  Sums* sums;                 // backward: likewise
  Sums* neighbour_sums;
  bool channels_together;     // channels lie next to each other
  int64_t position_block;     // positions (outer × inner) a unit of work
  int64_t units;
};

}  // namespace deu

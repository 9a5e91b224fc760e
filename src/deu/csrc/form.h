// Written by tools/generate.py from src/deu/_subspaces.py.  Do not edit.
#pragma once

namespace deu {

enum Number { p_, q_, A_, B_, Q_, K_, Af_, Bf_, Pf_, Qf_, G_, NUMBERS };
enum Kind { STEP = 0, POLYNOMIAL = 1, EXPONENTIAL = 2, REAL = 3, OSCILLATING = 4, CRITICAL = 5, ENTIRE = 6 };

}  // namespace deu

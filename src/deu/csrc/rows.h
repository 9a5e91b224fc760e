// Written by tools/generate.py from src/deu/_subspaces.py.  Do not edit.
// Included inside a namespace of its own for each instruction set.

struct Paper {
  static constexpr int ROWS = 10;
  static constexpr Kind KINDS[] = {STEP, POLYNOMIAL, EXPONENTIAL, POLYNOMIAL, EXPONENTIAL, OSCILLATING, REAL, CRITICAL, OSCILLATING, REAL};

  DEU_INLINE void snap(double& a, double& b, double& c, double eps) {
    double s_a, s_b, s_c;
    const bool x0 = eps > std::fabs(a);
    const bool x1 = eps > std::fabs(b);
    const bool x2 = eps > std::fabs(c);
    s_a = (x0 ? 0 : a);
    s_b = (x0 && x1 && x2 ? eps : (x1 ? 0 : b));
    s_c = (x2 ? 0 : c);
    a = s_a; b = s_b; c = s_c;
  }

  // The first row from `first` on that holds, for snapped coefficients.
  DEU_INLINE int row(double a, double b, double c, double eps, int first = 0) {
    (void)eps;
    int row = 9;  // overdamped
    row = first <= 8 && (-4*a*c + (b*b) < 0) ? 8 : row;  // oscillating
    row = first <= 7 && (a*c > 0 && std::fabs(4*a*c - (b*b)) < eps) ? 7 : row;  // critical
    row = first <= 6 && (b == 0) ? 6 : row;  // 101
    row = first <= 5 && (b == 0 && a*c > 0) ? 5 : row;  // 101
    row = first <= 4 && (c == 0) ? 4 : row;  // 110
    row = first <= 3 && (b == 0 && c == 0) ? 3 : row;  // 100
    row = first <= 2 && (a == 0) ? 2 : row;  // 011
    row = first <= 1 && (a == 0 && c == 0) ? 1 : row;  // 010
    row = first <= 0 && (a == 0 && b == 0) ? 0 : row;  // 001
    return row;
  }

  DEU_INLINE void force(int row, double& a, double& b, double& c) {
    (void)a; (void)b; (void)c;
    switch (row) {
      case 7: {  // critical
        double f_a, f_b, f_c;
        const double x0 = (1.0/2.0)*std::fabs(b);
        f_a = x0*(((a) > 0) - ((a) < 0));
        f_b = b;
        f_c = x0*(((c) > 0) - ((c) < 0));
        a = f_a; b = f_b; c = f_c;
        break;
      }
      default: break;
    }
  }

  template <class Numbers>
  DEU_INLINE void solve(int row, double a, double b, double c, double c1, double c2, Numbers n) {
    (void)a; (void)b; (void)c; (void)c1; (void)c2;
    switch (row) {
      case 0: {  // 001
        n[G_] = (1.0/(c));
        break;
      }
      case 1: {  // 010
        n[K_] = c1;
        n[Qf_] = (1.0/(b));
        break;
      }
      case 2: {  // 011
        n[p_] = -c/b;
        n[A_] = c1;
        n[Af_] = -1/c;
        break;
      }
      case 3: {  // 100
        n[Q_] = c1;
        n[K_] = c2;
        n[Pf_] = (1.0/2.0)/a;
        break;
      }
      case 4: {  // 110
        const double x0 = (1.0/(b));
        n[p_] = -b/a;
        n[A_] = -a*c1*x0;
        n[K_] = c2;
        n[Af_] = a/(b*b);
        n[Qf_] = x0;
        break;
      }
      case 5: {  // 101
        const double x0 = (1.0/2.0)/a;
        const double x1 = std::sqrt((4*a*c - (b*b)));
        const double x2 = (1.0/(c));
        n[p_] = -b*x0;
        n[q_] = x0*x1;
        n[A_] = c1;
        n[B_] = c2;
        n[Af_] = -x2;
        n[Bf_] = -b*x2/x1;
        break;
      }
      case 6: {  // 101
        const bool x0 = b < 0;
        const double x1 = std::sqrt((-4*a*c + (b*b)));
        const double x2 = b + x1*(x0 ? -1 : 1);
        const double x3 = -2*c/x2;
        const double x4 = -x2;
        const double x5 = (1.0/2.0)*x4/a;
        const double x6 = (1.0/(x1));
        const double x7 = -1.0/2.0*x2/c;
        const double x8 = 2*a/x4;
        n[p_] = (x0 ? x3 : x5);
        n[q_] = (x0 ? x5 : x3);
        n[A_] = c1;
        n[B_] = c2;
        n[Af_] = -x6*(x0 ? x7 : x8);
        n[Bf_] = x6*(x0 ? x8 : x7);
        break;
      }
      case 7: {  // critical
        const double x0 = (1.0/2.0)*b/a;
        const double x1 = (1.0/(c));
        n[p_] = -x0;
        n[A_] = c2;
        n[B_] = c1;
        n[Af_] = -x1;
        n[Bf_] = -x0*x1;
        break;
      }
      case 8: {  // oscillating
        const double x0 = (1.0/2.0)/a;
        const double x1 = std::sqrt((4*a*c - (b*b)));
        const double x2 = (1.0/(c));
        n[p_] = -b*x0;
        n[q_] = x0*x1;
        n[A_] = c1;
        n[B_] = c2;
        n[Af_] = -x2;
        n[Bf_] = -b*x2/x1;
        break;
      }
      case 9: {  // overdamped
        const bool x0 = b < 0;
        const double x1 = std::sqrt((-4*a*c + (b*b)));
        const double x2 = b + x1*(x0 ? -1 : 1);
        const double x3 = -2*c/x2;
        const double x4 = -x2;
        const double x5 = (1.0/2.0)*x4/a;
        const double x6 = (1.0/(x1));
        const double x7 = -1.0/2.0*x2/c;
        const double x8 = 2*a/x4;
        n[p_] = (x0 ? x3 : x5);
        n[q_] = (x0 ? x5 : x3);
        n[A_] = c1;
        n[B_] = c2;
        n[Af_] = -x6*(x0 ? x7 : x8);
        n[Bf_] = x6*(x0 ? x8 : x7);
        break;
      }
      default: break;
    }
  }

  template <class Numbers>
  DEU_INLINE void jacobian(int row, double a, double b, double c, double c1, double c2, Numbers J) {
    (void)a; (void)b; (void)c; (void)c1; (void)c2;
    switch (row) {
      case 0: {  // 001
        J[G_][2] = -1/(c*c);
        break;
      }
      case 1: {  // 010
        J[K_][3] = 1;
        J[Qf_][1] = -1/(b*b);
        break;
      }
      case 2: {  // 011
        J[p_][1] = c/(b*b);
        J[p_][2] = -1/b;
        J[A_][3] = 1;
        J[Af_][2] = (1.0/(c*c));
        break;
      }
      case 3: {  // 100
        J[Q_][3] = 1;
        J[K_][4] = 1;
        J[Pf_][0] = -(1.0/2.0)/(a*a);
        break;
      }
      case 4: {  // 110
        const double x0 = (1.0/(b));
        const double x1 = (1.0/(b*b));
        J[p_][0] = b/(a*a);
        J[p_][1] = -1/a;
        J[A_][0] = -c1*x0;
        J[A_][1] = a*c1*x1;
        J[A_][3] = -a*x0;
        J[K_][4] = 1;
        J[Af_][0] = x1;
        J[Af_][1] = -2*a/(b*b*b);
        J[Qf_][1] = -x1;
        break;
      }
      case 5: {  // 101
        const double x0 = (1.0/2.0)/(a*a);
        const double x1 = (1.0/(a));
        const double x2 = (1.0/2.0)*x1;
        const double x3 = (b*b);
        const double x4 = 4*a*c - x3;
        const double x5 = std::sqrt(x4);
        const double x6 = (1.0/(x5));
        const double x7 = b*x6;
        const double x8 = (1.0/(c*c));
        const double x9 = (1.0/(x4*std::sqrt(x4)));
        const double x10 = 2*b*x9;
        const double x11 = (1.0/(c));
        J[p_][0] = b*x0;
        J[p_][1] = -x2;
        J[q_][0] = c*x1*x6 - x0*x5;
        J[q_][1] = -x2*x7;
        J[q_][2] = x6;
        J[A_][3] = 1;
        J[B_][4] = 1;
        J[Af_][2] = x8;
        J[Bf_][0] = x10;
        J[Bf_][1] = -x11*x3*x9 - x11*x6;
        J[Bf_][2] = a*x10*x11 + x7*x8;
        break;
      }
      case 6: {  // 101
        const bool x0 = b < 0;
        const double x1 = (x0 ? -1 : 1);
        const double x2 = 4*a*c;
        const double x3 = (b*b) - x2;
        const double x4 = std::sqrt(x3);
        const double x5 = b + x1*x4;
        const double x6 = (1.0/(x5*x5));
        const double x7 = (c*c);
        const double x8 = (1.0/(x4));
        const double x9 = x1*x8;
        const double x10 = 4*x9;
        const double x11 = -x10*x6*x7;
        const double x12 = (1.0/(a));
        const double x13 = (a*a);
        const double x14 = -x5;
        const double x15 = c*x12*x9 - 1.0/2.0*x14/x13;
        const double x16 = b*x9 + 1;
        const double x17 = -x16;
        const double x18 = 2*c;
        const double x19 = -x17*x18*x6;
        const double x20 = (1.0/2.0)*x12*x17;
        const double x21 = x2*x9;
        const double x22 = -x21*x6 - 2/x5;
        const double x23 = (1.0/(x3*std::sqrt(x3)));
        const double x24 = (1.0/(c));
        const double x25 = (1.0/2.0)*x24;
        const double x26 = -x25*x5;
        const double x27 = (1.0/(x14));
        const double x28 = 2*a*x27;
        const double x29 = (x0 ? x26 : x28);
        const double x30 = x23*x29;
        const double x31 = (1.0/(x14*x14));
        const double x32 = -x21*x31 + 2*x27;
        const double x33 = b*x23;
        const double x34 = -x16*x25;
        const double x35 = 2*a;
        const double x36 = x16*x31*x35;
        const double x37 = a*x24*x9 + (1.0/2.0)*x5/x7;
        const double x38 = -x10*x13*x31;
        const double x39 = (x0 ? x28 : x26);
        const double x40 = x23*x39;
        J[p_][0] = (x0 ? x11 : x15);
        J[p_][1] = (x0 ? x19 : x20);
        J[p_][2] = (x0 ? x22 : x9);
        J[q_][0] = (x0 ? x15 : x11);
        J[q_][1] = (x0 ? x20 : x19);
        J[q_][2] = (x0 ? x9 : x22);
        J[A_][3] = 1;
        J[B_][4] = 1;
        J[Af_][0] = -x18*x30 - x8*(x0 ? x9 : x32);
        J[Af_][1] = x29*x33 - x8*(x0 ? x34 : x36);
        J[Af_][2] = -x30*x35 - x8*(x0 ? x37 : x38);
        J[Bf_][0] = x18*x40 + x8*(x0 ? x32 : x9);
        J[Bf_][1] = -x33*x39 + x8*(x0 ? x36 : x34);
        J[Bf_][2] = x35*x40 + x8*(x0 ? x38 : x37);
        break;
      }
      case 7: {  // critical
        const double x0 = (1.0/2.0)*b/(a*a);
        const double x1 = (1.0/2.0)/a;
        const double x2 = (1.0/(c*c));
        const double x3 = (1.0/(c));
        J[p_][0] = x0;
        J[p_][1] = -x1;
        J[A_][4] = 1;
        J[B_][3] = 1;
        J[Af_][2] = x2;
        J[Bf_][0] = x0*x3;
        J[Bf_][1] = -x1*x3;
        J[Bf_][2] = b*x1*x2;
        break;
      }
      case 8: {  // oscillating
        const double x0 = (1.0/2.0)/(a*a);
        const double x1 = (1.0/(a));
        const double x2 = (1.0/2.0)*x1;
        const double x3 = (b*b);
        const double x4 = 4*a*c - x3;
        const double x5 = std::sqrt(x4);
        const double x6 = (1.0/(x5));
        const double x7 = b*x6;
        const double x8 = (1.0/(c*c));
        const double x9 = (1.0/(x4*std::sqrt(x4)));
        const double x10 = 2*b*x9;
        const double x11 = (1.0/(c));
        J[p_][0] = b*x0;
        J[p_][1] = -x2;
        J[q_][0] = c*x1*x6 - x0*x5;
        J[q_][1] = -x2*x7;
        J[q_][2] = x6;
        J[A_][3] = 1;
        J[B_][4] = 1;
        J[Af_][2] = x8;
        J[Bf_][0] = x10;
        J[Bf_][1] = -x11*x3*x9 - x11*x6;
        J[Bf_][2] = a*x10*x11 + x7*x8;
        break;
      }
      case 9: {  // overdamped
        const bool x0 = b < 0;
        const double x1 = (x0 ? -1 : 1);
        const double x2 = 4*a*c;
        const double x3 = (b*b) - x2;
        const double x4 = std::sqrt(x3);
        const double x5 = b + x1*x4;
        const double x6 = (1.0/(x5*x5));
        const double x7 = (c*c);
        const double x8 = (1.0/(x4));
        const double x9 = x1*x8;
        const double x10 = 4*x9;
        const double x11 = -x10*x6*x7;
        const double x12 = (1.0/(a));
        const double x13 = (a*a);
        const double x14 = -x5;
        const double x15 = c*x12*x9 - 1.0/2.0*x14/x13;
        const double x16 = b*x9 + 1;
        const double x17 = -x16;
        const double x18 = 2*c;
        const double x19 = -x17*x18*x6;
        const double x20 = (1.0/2.0)*x12*x17;
        const double x21 = x2*x9;
        const double x22 = -x21*x6 - 2/x5;
        const double x23 = (1.0/(x3*std::sqrt(x3)));
        const double x24 = (1.0/(c));
        const double x25 = (1.0/2.0)*x24;
        const double x26 = -x25*x5;
        const double x27 = (1.0/(x14));
        const double x28 = 2*a*x27;
        const double x29 = (x0 ? x26 : x28);
        const double x30 = x23*x29;
        const double x31 = (1.0/(x14*x14));
        const double x32 = -x21*x31 + 2*x27;
        const double x33 = b*x23;
        const double x34 = -x16*x25;
        const double x35 = 2*a;
        const double x36 = x16*x31*x35;
        const double x37 = a*x24*x9 + (1.0/2.0)*x5/x7;
        const double x38 = -x10*x13*x31;
        const double x39 = (x0 ? x28 : x26);
        const double x40 = x23*x39;
        J[p_][0] = (x0 ? x11 : x15);
        J[p_][1] = (x0 ? x19 : x20);
        J[p_][2] = (x0 ? x22 : x9);
        J[q_][0] = (x0 ? x15 : x11);
        J[q_][1] = (x0 ? x20 : x19);
        J[q_][2] = (x0 ? x9 : x22);
        J[A_][3] = 1;
        J[B_][4] = 1;
        J[Af_][0] = -x18*x30 - x8*(x0 ? x9 : x32);
        J[Af_][1] = x29*x33 - x8*(x0 ? x34 : x36);
        J[Af_][2] = -x30*x35 - x8*(x0 ? x37 : x38);
        J[Bf_][0] = x18*x40 + x8*(x0 ? x32 : x9);
        J[Bf_][1] = -x33*x39 + x8*(x0 ? x36 : x34);
        J[Bf_][2] = x35*x40 + x8*(x0 ? x38 : x37);
        break;
      }
      default: break;
    }
  }
};

struct Continuous {
  static constexpr int ROWS = 3;
  static constexpr Kind KINDS[] = {ENTIRE, OSCILLATING, REAL};

  DEU_INLINE void snap(double& a, double& b, double& c, double eps) {
    double s_a, s_b, s_c;
    s_a = (eps > std::fabs(a) ? (a < 0 ? -eps : eps) : a);
    s_b = b;
    s_c = c;
    a = s_a; b = s_b; c = s_c;
  }

  // The first row from `first` on that holds, for snapped coefficients.
  DEU_INLINE int row(double a, double b, double c, double eps, int first = 0) {
    (void)eps;
    int row = 2;  // overdamped
    row = first <= 1 && (-4*a*c + (b*b) < 0) ? 1 : row;  // oscillating
    row = first <= 0 && (std::fabs(c/a) < 0.0050000000000000001*std::fabs(b/a) + 0.01 || std::fabs(c/a - 1.0/4.0*(b*b)/(a*a)) < 0.001 + 0.00025000000000000001*(b*b)/(a*a)) ? 0 : row;  // entire
    return row;
  }

  DEU_INLINE void force(int row, double& a, double& b, double& c) {
    (void)a; (void)b; (void)c;
    switch (row) {
      default: break;
    }
  }

  template <class Numbers>
  DEU_INLINE void solve(int row, double a, double b, double c, double c1, double c2, Numbers n) {
    (void)a; (void)b; (void)c; (void)c1; (void)c2;
    switch (row) {
      case 0: {  // entire
        const double x0 = (1.0/(a));
        const double x1 = b*x0;
        n[p_] = -1.0/2.0*x1;
        n[q_] = c*x0;
        n[A_] = c1;
        n[B_] = c1*x1 + c2;
        n[G_] = x0;
        break;
      }
      case 1: {  // oscillating
        const double x0 = (1.0/2.0)/a;
        const double x1 = b*x0;
        const double x2 = std::sqrt((4*a*c - (b*b)));
        const double x3 = (1.0/(x2));
        const double x4 = (1.0/(c));
        n[p_] = -x1;
        n[q_] = x0*x2;
        n[A_] = c1;
        n[B_] = 2*a*x3*(c1*x1 + c2);
        n[Af_] = -x4;
        n[Bf_] = -b*x3*x4;
        break;
      }
      case 2: {  // overdamped
        const bool x0 = b < 0;
        const double x1 = std::sqrt((-4*a*c + (b*b)));
        const double x2 = b + x1*(x0 ? -1 : 1);
        const double x3 = -2*c/x2;
        const double x4 = -x2;
        const double x5 = (1.0/2.0)*x4/a;
        const double x6 = (x0 ? x3 : x5);
        const double x7 = (x0 ? x5 : x3);
        const double x8 = -c2;
        const double x9 = (1.0/(x1));
        const double x10 = a*x9;
        const double x11 = -1.0/2.0*x2/c;
        const double x12 = 2*a/x4;
        n[p_] = x6;
        n[q_] = x7;
        n[A_] = x10*(c1*x7 + x8);
        n[B_] = x10*(-c1*x6 - x8);
        n[Af_] = -x9*(x0 ? x11 : x12);
        n[Bf_] = x9*(x0 ? x12 : x11);
        break;
      }
      default: break;
    }
  }

  template <class Numbers>
  DEU_INLINE void jacobian(int row, double a, double b, double c, double c1, double c2, Numbers J) {
    (void)a; (void)b; (void)c; (void)c1; (void)c2;
    switch (row) {
      case 0: {  // entire
        const double x0 = (1.0/(a*a));
        const double x1 = b*x0;
        const double x2 = (1.0/(a));
        J[p_][0] = (1.0/2.0)*x1;
        J[p_][1] = -1.0/2.0*x2;
        J[q_][0] = -c*x0;
        J[q_][2] = x2;
        J[A_][3] = 1;
        J[B_][0] = -c1*x1;
        J[B_][1] = c1*x2;
        J[B_][3] = b*x2;
        J[B_][4] = 1;
        J[G_][0] = -x0;
        break;
      }
      case 1: {  // oscillating
        const double x0 = (a*a);
        const double x1 = (1.0/2.0)/x0;
        const double x2 = (1.0/(a));
        const double x3 = (1.0/2.0)*x2;
        const double x4 = 4*a*c;
        const double x5 = (b*b);
        const double x6 = x4 - x5;
        const double x7 = std::sqrt(x6);
        const double x8 = (1.0/(x7));
        const double x9 = b*x8;
        const double x10 = c1*x8;
        const double x11 = b*c1*x3 + c2;
        const double x12 = (1.0/(x6*std::sqrt(x6)));
        const double x13 = x11*x12;
        const double x14 = 2*b*x12;
        const double x15 = a*x14;
        const double x16 = (1.0/(c*c));
        const double x17 = (1.0/(c));
        J[p_][0] = b*x1;
        J[p_][1] = -x3;
        J[q_][0] = c*x2*x8 - x1*x7;
        J[q_][1] = -x3*x9;
        J[q_][2] = x8;
        J[A_][3] = 1;
        J[B_][0] = -b*x10*x2 + 2*x11*x8 - x13*x4;
        J[B_][1] = x10 + x11*x15;
        J[B_][2] = -4*x0*x13;
        J[B_][3] = x9;
        J[B_][4] = 2*a*x8;
        J[Af_][2] = x16;
        J[Bf_][0] = x14;
        J[Bf_][1] = -x12*x17*x5 - x17*x8;
        J[Bf_][2] = x15*x17 + x16*x9;
        break;
      }
      case 2: {  // overdamped
        const bool x0 = b < 0;
        const double x1 = (x0 ? -1 : 1);
        const double x2 = a*c;
        const double x3 = 4*x2;
        const double x4 = (b*b) - x3;
        const double x5 = std::sqrt(x4);
        const double x6 = b + x1*x5;
        const double x7 = (1.0/(x6*x6));
        const double x8 = (c*c);
        const double x9 = (1.0/(x5));
        const double x10 = x1*x9;
        const double x11 = 4*x10;
        const double x12 = -x11*x7*x8;
        const double x13 = (1.0/(a));
        const double x14 = (a*a);
        const double x15 = -x6;
        const double x16 = (1.0/2.0)*x15;
        const double x17 = c*x10*x13 - x16/x14;
        const double x18 = (x0 ? x12 : x17);
        const double x19 = b*x10 + 1;
        const double x20 = -x19;
        const double x21 = 2*c;
        const double x22 = -x20*x21*x7;
        const double x23 = (1.0/2.0)*x13*x20;
        const double x24 = (x0 ? x22 : x23);
        const double x25 = 2/x6;
        const double x26 = x10*x3;
        const double x27 = -x25 - x26*x7;
        const double x28 = (x0 ? x27 : x10);
        const double x29 = (x0 ? x17 : x12);
        const double x30 = (x0 ? x23 : x22);
        const double x31 = (x0 ? x10 : x27);
        const double x32 = -c2;
        const double x33 = x13*x16;
        const double x34 = -c*x25;
        const double x35 = (x0 ? x33 : x34);
        const double x36 = c1*x35 + x32;
        const double x37 = (1.0/(x4*std::sqrt(x4)));
        const double x38 = 2*x37;
        const double x39 = x2*x38;
        const double x40 = a*x9;
        const double x41 = c1*x40;
        const double x42 = b*x37;
        const double x43 = a*x42;
        const double x44 = x14*x38;
        const double x45 = (x0 ? x34 : x33);
        const double x46 = -c1*x45 - x32;
        const double x47 = (1.0/(c));
        const double x48 = (1.0/2.0)*x47;
        const double x49 = -x48*x6;
        const double x50 = (1.0/(x15));
        const double x51 = 2*a*x50;
        const double x52 = (x0 ? x49 : x51);
        const double x53 = x21*x37;
        const double x54 = (1.0/(x15*x15));
        const double x55 = -x26*x54 + 2*x50;
        const double x56 = -x19*x48;
        const double x57 = 2*a*x19*x54;
        const double x58 = a*x38;
        const double x59 = a*x10*x47 + (1.0/2.0)*x6/x8;
        const double x60 = -x11*x14*x54;
        const double x61 = (x0 ? x51 : x49);
        J[p_][0] = x18;
        J[p_][1] = x24;
        J[p_][2] = x28;
        J[q_][0] = x29;
        J[q_][1] = x30;
        J[q_][2] = x31;
        J[A_][0] = x29*x41 + x36*x39 + x36*x9;
        J[A_][1] = a*c1*x30*x9 - x36*x43;
        J[A_][2] = x31*x41 + x36*x44;
        J[A_][3] = x35*x40;
        J[A_][4] = -x40;
        J[B_][0] = -x18*x41 + x39*x46 + x46*x9;
        J[B_][1] = -x24*x41 - x43*x46;
        J[B_][2] = -x28*x41 + x44*x46;
        J[B_][3] = -x40*x45;
        J[B_][4] = x40;
        J[Af_][0] = -x52*x53 - x9*(x0 ? x10 : x55);
        J[Af_][1] = x42*x52 - x9*(x0 ? x56 : x57);
        J[Af_][2] = -x52*x58 - x9*(x0 ? x59 : x60);
        J[Bf_][0] = x53*x61 + x9*(x0 ? x55 : x10);
        J[Bf_][1] = -x42*x61 + x9*(x0 ? x57 : x56);
        J[Bf_][2] = x58*x61 + x9*(x0 ? x60 : x59);
        break;
      }
      default: break;
    }
  }
};

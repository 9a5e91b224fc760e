# Written by tools/generate.py from src/deu/_subspaces.py.  Do not edit.
# ruff: noqa
# mypy: ignore-errors
import triton
import triton.language as tl

from ._triton_elements import inverse, root


@triton.jit
def paper_snap(a, b, c, eps):
    # The coefficients as the rows take them.
    x0 = (eps > tl.abs(a))
    x1 = (eps > tl.abs(b))
    x2 = (eps > tl.abs(c))
    s_a = tl.where(x0, 0, a)
    s_b = tl.where((x0) & (x1) & (x2), eps, tl.where(x1, 0, b))
    s_c = tl.where(x2, 0, c)
    return s_a, s_b, s_c


@triton.jit
def paper_row(a, b, c, eps, FIRST: tl.constexpr = 0):
    # The first row from FIRST on that holds, for snapped coefficients.
    row = tl.where(a == a, 9, 9)  # overdamped
    if FIRST <= 8:
        row = tl.where(((-4)*a*c + (b*b) < 0), 8, row)  # oscillating
    if FIRST <= 7:
        row = tl.where(((a*c > 0)) & ((tl.abs(4*a*c - (b*b)) < eps)), 7, row)  # critical
    if FIRST <= 6:
        row = tl.where((b == 0), 6, row)  # 101
    if FIRST <= 5:
        row = tl.where(((b == 0)) & ((a*c > 0)), 5, row)  # 101
    if FIRST <= 4:
        row = tl.where((c == 0), 4, row)  # 110
    if FIRST <= 3:
        row = tl.where(((b == 0)) & ((c == 0)), 3, row)  # 100
    if FIRST <= 2:
        row = tl.where((a == 0), 2, row)  # 011
    if FIRST <= 1:
        row = tl.where(((a == 0)) & ((c == 0)), 1, row)  # 010
    if FIRST <= 0:
        row = tl.where(((a == 0)) & ((b == 0)), 0, row)  # 001
    return row


@triton.jit
def paper_kind(row):
    # The kind of each row.
    kind = tl.where(row == 0, 0, 0)
    kind = tl.where(row == 1, 1, kind)  # 010
    kind = tl.where(row == 2, 2, kind)  # 011
    kind = tl.where(row == 3, 1, kind)  # 100
    kind = tl.where(row == 4, 2, kind)  # 110
    kind = tl.where(row == 5, 4, kind)  # 101
    kind = tl.where(row == 6, 3, kind)  # 101
    kind = tl.where(row == 7, 5, kind)  # critical
    kind = tl.where(row == 8, 4, kind)  # oscillating
    kind = tl.where(row == 9, 3, kind)  # overdamped
    return kind


@triton.jit
def paper_force(row, a, b, c):
    # The values at which a row and its derivatives are taken.
    x0 = ((1.0/2.0))*tl.abs(b)
    f_a = x0*tl.where(a > 0, 1.0, tl.where(a < 0, -1.0, 0.0))
    f_b = b
    f_c = x0*tl.where(c > 0, 1.0, tl.where(c < 0, -1.0, 0.0))
    a = tl.where(row == 7, f_a, a)
    b = tl.where(row == 7, f_b, b)
    c = tl.where(row == 7, f_c, c)
    return a, b, c


@triton.jit
def paper_solve(row, a, b, c, c1, c2):
    # The numbers of the normal form.
    x0 = inverse(b)
    x1 = inverse(a)
    x2 = x1*b
    x3 = ((1.0/2.0))*x2
    x4 = -x3
    x5 = (b < 0)
    x6 = 4*a*c - (b*b)
    x7 = root((-x6))
    x8 = b + x7*tl.where(x5, -1, 1)
    x9 = (-2)*c*inverse(x8)
    x10 = ((1.0/2.0))*x1
    x11 = -(x10*x8)
    x12 = tl.where(x5, x9, x11)
    x13 = root(x6)
    x14 = x10*x13
    x15 = tl.where(x5, x11, x9)
    x16 = inverse(c)
    x17 = -x16
    x18 = inverse(x7)
    x19 = -x18
    x20 = -(x16*b*inverse(x13))
    p_2 = -(x0*c)
    p_4 = -x2
    p_5 = x4
    p_6 = x12
    p_7 = x4
    p_8 = x4
    p_9 = x12
    q_5 = x14
    q_6 = x15
    q_8 = x14
    q_9 = x15
    A_0 = x16
    A_2 = c1
    A_3 = c1
    A_4 = -(x0*a*c1)
    A_5 = c1
    A_6 = c1
    A_7 = c2
    A_8 = c1
    A_9 = c1
    B_1 = c1
    B_3 = c2
    B_4 = c2
    B_5 = c2
    B_6 = c2
    B_7 = c1
    B_8 = c2
    B_9 = c2
    Af_2 = x0
    Af_3 = x10
    Af_4 = -x0
    Af_5 = x17
    Af_6 = x19
    Af_7 = x17
    Af_8 = x17
    Af_9 = x19
    Bf_1 = x0
    Bf_4 = x0
    Bf_5 = x20
    Bf_6 = x18
    Bf_7 = -(x16*x3)
    Bf_8 = x20
    Bf_9 = x18
    p = tl.zeros_like(a)
    p = tl.where(row == 2, p_2, p)
    p = tl.where(row == 4, p_4, p)
    p = tl.where(row == 5, p_5, p)
    p = tl.where(row == 6, p_6, p)
    p = tl.where(row == 7, p_7, p)
    p = tl.where(row == 8, p_8, p)
    p = tl.where(row == 9, p_9, p)
    q = tl.zeros_like(a)
    q = tl.where(row == 5, q_5, q)
    q = tl.where(row == 6, q_6, q)
    q = tl.where(row == 8, q_8, q)
    q = tl.where(row == 9, q_9, q)
    A = tl.zeros_like(a)
    A = tl.where(row == 0, A_0, A)
    A = tl.where(row == 2, A_2, A)
    A = tl.where(row == 3, A_3, A)
    A = tl.where(row == 4, A_4, A)
    A = tl.where(row == 5, A_5, A)
    A = tl.where(row == 6, A_6, A)
    A = tl.where(row == 7, A_7, A)
    A = tl.where(row == 8, A_8, A)
    A = tl.where(row == 9, A_9, A)
    B = tl.zeros_like(a)
    B = tl.where(row == 1, B_1, B)
    B = tl.where(row == 3, B_3, B)
    B = tl.where(row == 4, B_4, B)
    B = tl.where(row == 5, B_5, B)
    B = tl.where(row == 6, B_6, B)
    B = tl.where(row == 7, B_7, B)
    B = tl.where(row == 8, B_8, B)
    B = tl.where(row == 9, B_9, B)
    Af = tl.zeros_like(a)
    Af = tl.where(row == 2, Af_2, Af)
    Af = tl.where(row == 3, Af_3, Af)
    Af = tl.where(row == 4, Af_4, Af)
    Af = tl.where(row == 5, Af_5, Af)
    Af = tl.where(row == 6, Af_6, Af)
    Af = tl.where(row == 7, Af_7, Af)
    Af = tl.where(row == 8, Af_8, Af)
    Af = tl.where(row == 9, Af_9, Af)
    Bf = tl.zeros_like(a)
    Bf = tl.where(row == 1, Bf_1, Bf)
    Bf = tl.where(row == 4, Bf_4, Bf)
    Bf = tl.where(row == 5, Bf_5, Bf)
    Bf = tl.where(row == 6, Bf_6, Bf)
    Bf = tl.where(row == 7, Bf_7, Bf)
    Bf = tl.where(row == 8, Bf_8, Bf)
    Bf = tl.where(row == 9, Bf_9, Bf)
    return p, q, A, B, Af, Bf


@triton.jit
def paper_pull(row, a, b, c, c1, c2, g_p, g_q, g_A, g_B, g_Af, g_Bf):
    # The gradient of the five coefficients, from that of the numbers.
    x0 = inverse((a*a))
    x1 = ((1.0/2.0))*x0
    x2 = inverse(b)
    x3 = x2*g_A
    x4 = x1*b*g_p
    x5 = 4*a*c
    x6 = (b*b)
    x7 = x5 - x6
    x8 = inverse((x7*root(x7)))
    x9 = 2*g_Bf
    x10 = root(x7)
    x11 = inverse(x10)
    x12 = inverse(a)
    x13 = x12*c
    x14 = x8*x9*b + g_q*(-(x1*x10) + x11*x13) + x4
    x15 = -x7
    x16 = inverse((x15*root(x15)))
    x17 = x16*c
    x18 = 2*g_Af
    x19 = (c*c)
    x20 = (b < 0)
    x21 = tl.where(x20, -1, 1)
    x22 = root(x15)
    x23 = b + x21*x22
    x24 = inverse((x23*x23))
    x25 = x21*inverse(x22)
    x26 = x24*x25
    x27 = (-4)*x19*x26
    x28 = x1*x23 + x13*x25
    x29 = g_p*tl.where(x20, x27, x28) + g_q*tl.where(x20, x28, x27) - (x17*x18) + x17*x9
    x30 = inverse(c)
    x31 = x30*g_Bf
    x32 = inverse(x6)
    x33 = -(x32*g_Bf)
    x34 = x32*g_Af
    x35 = x12*g_p
    x36 = ((1.0/2.0))*x35
    x37 = x11*g_q
    x38 = ((1.0/2.0))*x12
    x39 = x30*x8
    x40 = -(x37*x38*b) + g_Bf*(-(x11*x30) - (x39*x6)) - x36
    x41 = x16*b
    x42 = -(x25*b) - 1
    x43 = (-2)*x24*x42*c
    x44 = x38*x42
    x45 = x41*g_Af - (x41*g_Bf) + g_p*tl.where(x20, x43, x44) + g_q*tl.where(x20, x44, x43)
    x46 = inverse(x19)
    x47 = x46*g_Af
    x48 = x46*b
    x49 = g_Bf*(2*x39*a*b + x11*x48) + x37 + x47
    x50 = x16*a
    x51 = -(x26*x5) + (-2)*inverse(x23)
    x52 = g_p*tl.where(x20, x51, x25) + g_q*tl.where(x20, x25, x51) - (x18*x50) + x50*x9
    d_a_3 = -(x1*g_Af)
    d_a_4 = x0*b*g_p - (x3*c1)
    d_a_5 = x14
    d_a_6 = x29
    d_a_7 = x1*x31*b + x4
    d_a_8 = x14
    d_a_9 = x29
    d_b_1 = x33
    d_b_2 = x32*c*g_p - x34
    d_b_4 = x32*a*c1*g_A + x33 + x34 - x35
    d_b_5 = x40
    d_b_6 = x45
    d_b_7 = -(x31*x38) - x36
    d_b_8 = x40
    d_b_9 = x45
    d_c_0 = -(x46*g_A)
    d_c_2 = -(x2*g_p)
    d_c_5 = x49
    d_c_6 = x52
    d_c_7 = x38*x48*g_Bf + x47
    d_c_8 = x49
    d_c_9 = x52
    d_c1_1 = g_B
    d_c1_2 = g_A
    d_c1_3 = g_A
    d_c1_4 = -(x3*a)
    d_c1_5 = g_A
    d_c1_6 = g_A
    d_c1_7 = g_B
    d_c1_8 = g_A
    d_c1_9 = g_A
    d_c2_3 = g_B
    d_c2_4 = g_B
    d_c2_5 = g_B
    d_c2_6 = g_B
    d_c2_7 = g_A
    d_c2_8 = g_B
    d_c2_9 = g_B
    d_a = tl.zeros_like(a)
    d_a = tl.where(row == 3, d_a_3, d_a)
    d_a = tl.where(row == 4, d_a_4, d_a)
    d_a = tl.where(row == 5, d_a_5, d_a)
    d_a = tl.where(row == 6, d_a_6, d_a)
    d_a = tl.where(row == 7, d_a_7, d_a)
    d_a = tl.where(row == 8, d_a_8, d_a)
    d_a = tl.where(row == 9, d_a_9, d_a)
    d_b = tl.zeros_like(a)
    d_b = tl.where(row == 1, d_b_1, d_b)
    d_b = tl.where(row == 2, d_b_2, d_b)
    d_b = tl.where(row == 4, d_b_4, d_b)
    d_b = tl.where(row == 5, d_b_5, d_b)
    d_b = tl.where(row == 6, d_b_6, d_b)
    d_b = tl.where(row == 7, d_b_7, d_b)
    d_b = tl.where(row == 8, d_b_8, d_b)
    d_b = tl.where(row == 9, d_b_9, d_b)
    d_c = tl.zeros_like(a)
    d_c = tl.where(row == 0, d_c_0, d_c)
    d_c = tl.where(row == 2, d_c_2, d_c)
    d_c = tl.where(row == 5, d_c_5, d_c)
    d_c = tl.where(row == 6, d_c_6, d_c)
    d_c = tl.where(row == 7, d_c_7, d_c)
    d_c = tl.where(row == 8, d_c_8, d_c)
    d_c = tl.where(row == 9, d_c_9, d_c)
    d_c1 = tl.zeros_like(a)
    d_c1 = tl.where(row == 1, d_c1_1, d_c1)
    d_c1 = tl.where(row == 2, d_c1_2, d_c1)
    d_c1 = tl.where(row == 3, d_c1_3, d_c1)
    d_c1 = tl.where(row == 4, d_c1_4, d_c1)
    d_c1 = tl.where(row == 5, d_c1_5, d_c1)
    d_c1 = tl.where(row == 6, d_c1_6, d_c1)
    d_c1 = tl.where(row == 7, d_c1_7, d_c1)
    d_c1 = tl.where(row == 8, d_c1_8, d_c1)
    d_c1 = tl.where(row == 9, d_c1_9, d_c1)
    d_c2 = tl.zeros_like(a)
    d_c2 = tl.where(row == 3, d_c2_3, d_c2)
    d_c2 = tl.where(row == 4, d_c2_4, d_c2)
    d_c2 = tl.where(row == 5, d_c2_5, d_c2)
    d_c2 = tl.where(row == 6, d_c2_6, d_c2)
    d_c2 = tl.where(row == 7, d_c2_7, d_c2)
    d_c2 = tl.where(row == 8, d_c2_8, d_c2)
    d_c2 = tl.where(row == 9, d_c2_9, d_c2)
    return d_a, d_b, d_c, d_c1, d_c2


@triton.jit
def continuous_snap(a, b, c, eps):
    # The coefficients as the rows take them.
    s_a = tl.where((eps > tl.abs(a)), tl.where((a < 0), -eps, eps), a)
    s_b = b
    s_c = c
    return s_a, s_b, s_c


@triton.jit
def continuous_row(a, b, c, eps, FIRST: tl.constexpr = 0):
    # The first row from FIRST on that holds, for snapped coefficients.
    row = tl.where(a == a, 2, 2)  # overdamped
    if FIRST <= 1:
        row = tl.where(((-4)*a*c + (b*b) < 0), 1, row)  # oscillating
    if FIRST <= 0:
        row = tl.where(((tl.abs(c*inverse(a)) < 0.005*tl.abs(b*inverse(a)) + 0.01)) | ((tl.abs(c*inverse(a) + ((-1.0/4.0))*inverse((a*a))*(b*b)) < 0.001 + 0.00025*inverse((a*a))*(b*b))), 0, row)  # entire
    return row


@triton.jit
def continuous_kind(row):
    # The kind of each row.
    kind = tl.where(row == 0, 6, 6)
    kind = tl.where(row == 1, 4, kind)  # oscillating
    kind = tl.where(row == 2, 3, kind)  # overdamped
    return kind


@triton.jit
def continuous_force(row, a, b, c):
    # The values at which a row and its derivatives are taken.
    return a, b, c


@triton.jit
def continuous_solve(row, a, b, c, c1, c2):
    # The numbers of the normal form.
    x0 = inverse(a)
    x1 = ((1.0/2.0))*x0
    x2 = x1*b
    x3 = -x2
    x4 = (b < 0)
    x5 = 4*a*c - (b*b)
    x6 = root((-x5))
    x7 = b + x6*tl.where(x4, -1, 1)
    x8 = (-2)*c*inverse(x7)
    x9 = -(x1*x7)
    x10 = tl.where(x4, x8, x9)
    x11 = root(x5)
    x12 = tl.where(x4, x9, x8)
    x13 = -c2
    x14 = inverse(x6)
    x15 = x14*a
    x16 = inverse(x11)
    x17 = inverse(c)
    p_0 = x3
    p_1 = x3
    p_2 = x10
    q_0 = x0*c
    q_1 = x1*x11
    q_2 = x12
    A_0 = c1
    A_1 = c1
    A_2 = x15*(x12*c1 + x13)
    B_0 = x0*b*c1 + c2
    B_1 = 2*x16*a*(x2*c1 + c2)
    B_2 = x15*(-(x10*c1) - x13)
    Af_0 = x0
    Af_1 = -x17
    Af_2 = -x14
    Bf_1 = -(x16*x17*b)
    Bf_2 = x14
    p = tl.zeros_like(a)
    p = tl.where(row == 0, p_0, p)
    p = tl.where(row == 1, p_1, p)
    p = tl.where(row == 2, p_2, p)
    q = tl.zeros_like(a)
    q = tl.where(row == 0, q_0, q)
    q = tl.where(row == 1, q_1, q)
    q = tl.where(row == 2, q_2, q)
    A = tl.zeros_like(a)
    A = tl.where(row == 0, A_0, A)
    A = tl.where(row == 1, A_1, A)
    A = tl.where(row == 2, A_2, A)
    B = tl.zeros_like(a)
    B = tl.where(row == 0, B_0, B)
    B = tl.where(row == 1, B_1, B)
    B = tl.where(row == 2, B_2, B)
    Af = tl.zeros_like(a)
    Af = tl.where(row == 0, Af_0, Af)
    Af = tl.where(row == 1, Af_1, Af)
    Af = tl.where(row == 2, Af_2, Af)
    Bf = tl.zeros_like(a)
    Bf = tl.where(row == 1, Bf_1, Bf)
    Bf = tl.where(row == 2, Bf_2, Bf)
    return p, q, A, B, Af, Bf


@triton.jit
def continuous_pull(row, a, b, c, c1, c2, g_p, g_q, g_A, g_B, g_Af, g_Bf):
    # The gradient of the five coefficients, from that of the numbers.
    x0 = (a*a)
    x1 = inverse(x0)
    x2 = b*c1
    x3 = ((1.0/2.0))*x1
    x4 = 2*g_Bf
    x5 = a*c
    x6 = 4*x5
    x7 = (b*b)
    x8 = x6 - x7
    x9 = inverse((x8*root(x8)))
    x10 = x9*b
    x11 = root(x8)
    x12 = inverse(x11)
    x13 = inverse(a)
    x14 = x13*c
    x15 = x12*c1
    x16 = ((1.0/2.0))*x13
    x17 = c2 + x16*x2
    x18 = x17*x9
    x19 = -x8
    x20 = inverse((x19*root(x19)))
    x21 = x20*c
    x22 = 2*g_Af
    x23 = (c*c)
    x24 = (b < 0)
    x25 = tl.where(x24, -1, 1)
    x26 = root(x19)
    x27 = b + x25*x26
    x28 = inverse((x27*x27))
    x29 = inverse(x26)
    x30 = x25*x29
    x31 = x28*x30
    x32 = (-4)*x23*x31
    x33 = -x27
    x34 = x14*x30 - (x3*x33)
    x35 = tl.where(x24, x32, x34)
    x36 = tl.where(x24, x34, x32)
    x37 = -c2
    x38 = 2*inverse(x27)
    x39 = -(x38*c)
    x40 = x16*x33
    x41 = tl.where(x24, x39, x40)
    x42 = -(x41*c1) - x37
    x43 = 2*x20
    x44 = x43*x5
    x45 = x29*a
    x46 = x45*c1
    x47 = tl.where(x24, x40, x39)
    x48 = x47*c1 + x37
    x49 = -(x16*g_p)
    x50 = x13*g_B
    x51 = x13*g_q
    x52 = x12*b
    x53 = inverse(c)
    x54 = x53*x9
    x55 = 2*a
    x56 = x20*b
    x57 = -(x30*b) - 1
    x58 = (-2)*x28*x57*c
    x59 = x16*x57
    x60 = tl.where(x24, x58, x59)
    x61 = tl.where(x24, x59, x58)
    x62 = x56*a
    x63 = inverse(x23)
    x64 = x20*a
    x65 = -(x31*x6) - x38
    x66 = tl.where(x24, x65, x30)
    x67 = tl.where(x24, x30, x65)
    x68 = x0*x43
    x69 = x45*g_A
    d_a_0 = ((1.0/2.0))*x1*b*g_p - (x1*c*g_q) - (x1*g_Af) - (x1*x2*g_B)
    d_a_1 = x3*b*g_p + g_B*(-(x13*x15*b) + 2*x12*x17 - (x18*x6)) + g_q*(-(x11*x3) + x12*x14) + x10*x4
    d_a_2 = g_A*(x29*x48 + x36*x46 + x44*x48) + g_B*(x29*x42 - (x35*x46) + x42*x44) + x35*g_p + x36*g_q - (x21*x22) + x21*x4
    d_b_0 = x50*c1 + x49
    d_b_1 = g_B*(x10*x17*x55 + x15) + g_Bf*(-(x12*x53) - (x54*x7)) + x49 + ((-1.0/2.0))*x51*x52
    d_b_2 = g_A*(x29*x61*a*c1 - (x48*x62)) + x56*g_Af + g_B*(-(x42*x62) - (x46*x60)) - (x56*g_Bf) + x60*g_p + x61*g_q
    d_c_0 = x51
    d_c_1 = x63*g_Af + (-4)*x0*x18*g_B + g_Bf*(x54*x55*b + x52*x63) + x12*g_q
    d_c_2 = g_A*(x46*x67 + x48*x68) + g_B*(x42*x68 - (x46*x66)) + x66*g_p + x67*g_q - (x22*x64) + x4*x64
    d_c1_0 = x50*b + g_A
    d_c1_1 = g_A + x52*g_B
    d_c1_2 = -(x41*x45*g_B) + x47*x69
    d_c2_0 = g_B
    d_c2_1 = 2*x12*a*g_B
    d_c2_2 = x29*a*g_B - x69
    d_a = tl.zeros_like(a)
    d_a = tl.where(row == 0, d_a_0, d_a)
    d_a = tl.where(row == 1, d_a_1, d_a)
    d_a = tl.where(row == 2, d_a_2, d_a)
    d_b = tl.zeros_like(a)
    d_b = tl.where(row == 0, d_b_0, d_b)
    d_b = tl.where(row == 1, d_b_1, d_b)
    d_b = tl.where(row == 2, d_b_2, d_b)
    d_c = tl.zeros_like(a)
    d_c = tl.where(row == 0, d_c_0, d_c)
    d_c = tl.where(row == 1, d_c_1, d_c)
    d_c = tl.where(row == 2, d_c_2, d_c)
    d_c1 = tl.zeros_like(a)
    d_c1 = tl.where(row == 0, d_c1_0, d_c1)
    d_c1 = tl.where(row == 1, d_c1_1, d_c1)
    d_c1 = tl.where(row == 2, d_c1_2, d_c1)
    d_c2 = tl.zeros_like(a)
    d_c2 = tl.where(row == 0, d_c2_0, d_c2)
    d_c2 = tl.where(row == 1, d_c2_1, d_c2)
    d_c2 = tl.where(row == 2, d_c2_2, d_c2)
    return d_a, d_b, d_c, d_c1, d_c2

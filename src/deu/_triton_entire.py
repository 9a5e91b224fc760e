# mypy: ignore-errors
"""Units right at a seam of the continuous solution, in Triton and in float64.

The formulas are those of ``deu/_entire.py``, with their derivatives, as in ``csrc/entire.h``;
``docs/mathematics.md`` derives them.  Every formula is evaluated, at arguments made harmless where
it does not hold, and the right one chosen.
"""

import triton
import triton.language as tl

from ._triton_elements import DOUBLE, LOG2E, exp2_and_less_one, sine_cosine


@triton.jit
def within(x, limit):
    return tl.where(x > limit, limit, tl.where(x < -limit, -limit, x))


@triton.jit
def natural_exp(x):
    e, _ = exp2_and_less_one(x * LOG2E, DOUBLE)
    return e


@triton.jit
def homogeneous(x, z, t, M: tl.constexpr):
    # X = e^x·C(z), Y = t·e^x·S(z), their derivatives by z, and X and Y with what a cap holds fixed
    # left out; √z, of at least 1/32, and its inverse; whether e^x is held.
    m = tl.full((), M, tl.float64)
    held = x > m
    x = tl.where(held, m, x)
    root = tl.sqrt(tl.where(z > 0.03125, z, 0.03125).to(tl.float64))
    over_root = 1.0 / root
    above, below = z >= 1, z <= -1

    # |z| < 1: power series.  1/(2j)!, 1/(2j+1)! and (j+1)/(2j+3)! by dividing as j falls.
    zs = within(z, 1.0)
    even, odd, odd_z = zs * 0.0, zs * 0.0, zs * 0.0
    for j in tl.static_range(10, -1, -1):
        even = 1.0 + even * zs * (1.0 / ((2 * j + 1) * (2 * j + 2)))
        odd = 1.0 + odd * zs * (1.0 / ((2 * j + 2) * (2 * j + 3)))
        odd_z = (j + 1.0) + odd_z * zs * (1.0 / ((2 * j + 4) * (2 * j + 5)))
    odd_z = odd_z * (1.0 / 6.0)

    # z <= -1: sine and cosine
    w = tl.sqrt(tl.where(below, -z, 1.0).to(tl.float64))
    over_w = 1.0 / w
    sine, cosine, _ = sine_cosine(w, 0.31830988618379067154, 0.0, DOUBLE)
    sinc = sine * over_w
    even = tl.where(below, cosine, even)
    odd = tl.where(below, sinc, odd)
    odd_z = tl.where(below, (cosine - sinc) * (-0.5 * over_w * over_w), odd_z)
    e = natural_exp(x)

    # z >= 1: two real exponentials, the growing one capped
    s = tl.where(root > 1, root, 1.0)
    up = x + s
    full = up > 2.0 * m
    grown = natural_exp(tl.where(full, 2.0 * m, up))
    shrunk = natural_exp(x - s)
    live = tl.where(full, 0.0, grown)
    over_2s = 0.5 * tl.where(root > 1, over_root, 1.0)
    real_y = t * (grown - shrunk) * over_2s

    X = tl.where(above, (grown + shrunk) * 0.5, e * even)
    Y = tl.where(above, real_y, t * e * odd)
    live_x = tl.where(above, (live + shrunk) * 0.5, X)
    live_y = tl.where(above, t * (live - shrunk) * over_2s, Y)
    X_z = tl.where(above, (live - shrunk) * over_2s * 0.5, e * odd * 0.5)
    Y_z = tl.where(above, (t * (live + shrunk) - 2.0 * real_y) * over_2s * over_2s, t * e * odd_z)
    return X, Y, live_x, live_y, X_z, Y_z, root, over_root, held


@triton.jit
def response(
    x, k, z, t, alpha, over_kappa, X, Y, root, over_root, X_alpha, Y_alpha, X_kappa, Y_kappa
):
    # U = ∫Y for t > 0 and its derivatives by α and κ, given those of X and Y.
    tiny = (tl.abs(k) < 0.03125) & (tl.abs(x) < 0.25)
    one_root = (z > 0.03125) & (tl.abs(k) < 0.25 * (tl.abs(x) + root))
    over_t = 1.0 / tl.where(t > 0, t, 1.0)

    # Both roots near 0: Taylor's series by the ODE's recurrence, with its derivatives.
    xs, ks = within(x, 0.25), within(k, 0.03125)
    nothing = xs * 0.0
    before, term = nothing + 0.5, xs * (1.0 / 3.0)
    before_x, term_x = nothing, nothing + 1.0 / 3.0
    before_k, term_k = nothing, nothing
    total, total_x, total_k = before, nothing, nothing
    for n in tl.static_range(3, 16):
        total += term
        total_x += term_x
        total_k += term_k
        after = 2.0 * xs * term - ks * before * (1.0 / n)
        after_x = 2.0 * (term + xs * term_x) - ks * before_x * (1.0 / n)
        after_k = 2.0 * xs * term_k - (before + ks * before_k) * (1.0 / n)
        before, before_x, before_k = term, term_x, term_k
        term = after * (1.0 / (n + 1))
        term_x = after_x * (1.0 / (n + 1))
        term_k = after_k * (1.0 / (n + 1))

    # One root near 0, the other not.
    s, over_s = tl.where(x < 0, -root, root), tl.where(x < 0, -over_root, over_root)
    over_far = 1.0 / (x + s)
    near = within(k * over_far, 0.25)
    phi, phi_slope = nothing, nothing
    for j in tl.static_range(10, -1, -1):
        phi = 1.0 + phi * near * (1.0 / (j + 2))
        phi_slope = (j + 1.0) + phi_slope * near * (1.0 / (j + 3))
    phi_slope = phi_slope * 0.5
    split = (Y * over_t - phi) * over_far
    turn, bend = t * x * over_s, t * t * over_s * 0.5
    split_alpha = (Y_alpha * over_t - phi_slope * (t - turn) - split * (t + turn)) * over_far
    split_kappa = (Y_kappa * over_t - phi_slope * bend + split * bend) * over_far

    # Neither: the closed form.
    closed = (1.0 - X + alpha * Y) * over_kappa
    closed_alpha = (-X_alpha + Y + alpha * Y_alpha) * over_kappa
    closed_kappa = (-X_kappa + alpha * Y_kappa - closed) * over_kappa

    t2 = t * t
    U = tl.where(tiny, t2 * total, tl.where(one_root, t2 * split, closed))
    U_alpha = tl.where(tiny, t2 * t * total_x, tl.where(one_root, t2 * split_alpha, closed_alpha))
    U_kappa = tl.where(tiny, t2 * t2 * total_k, tl.where(one_root, t2 * split_kappa, closed_kappa))
    return U, U_alpha, U_kappa


@triton.jit
def entire_point(t, unit, MAX_EXPONENT: tl.constexpr):
    # Value and slope at t, and the derivatives by p = α, q = κ, A, B and Af, which is 1/a.
    M: tl.constexpr = MAX_EXPONENT if MAX_EXPONENT < 300.0 else 300.0
    alpha, kappa = unit.p, unit.q
    x, k = alpha * t, kappa * t * t
    z = x * x - k
    X, Y, live_x, live_y, X_z, Y_z, root, over_root, held = homogeneous(x, z, t, M)
    moving = tl.where(held, 0.0, 1.0)
    X_alpha, X_kappa = moving * t * live_x + 2.0 * alpha * t * t * X_z, -t * t * X_z
    Y_alpha, Y_kappa = moving * t * live_y + 2.0 * alpha * t * t * Y_z, -t * t * Y_z
    X_t = moving * alpha * live_x + (alpha * alpha - kappa) * live_y
    Y_t = moving * alpha * live_y + live_x
    F1 = X + alpha * Y
    over_kappa = 1.0 / tl.where(kappa == 0, 1.0, kappa)  # unused where κ is small
    U, U_alpha, U_kappa = response(
        x, k, z, t, alpha, over_kappa, X, Y, root, over_root, X_alpha, Y_alpha, X_kappa, Y_kappa
    )
    G = tl.where(t > 0, unit.Af, 0.0)
    y = unit.A * F1 + unit.B * Y + G * U
    slope = unit.A * (X_t + alpha * Y_t) + unit.B * Y_t + G * live_y
    by_p = unit.A * (X_alpha + Y + alpha * Y_alpha) + unit.B * Y_alpha + G * U_alpha
    by_q = unit.A * (X_kappa + alpha * Y_kappa) + unit.B * Y_kappa + G * U_kappa
    return y, slope, by_p, by_q, F1, Y, tl.where(t > 0, U, 0.0)

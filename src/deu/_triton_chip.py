# mypy: ignore-errors
"""NVIDIA's own instructions, and what stands in for them elsewhere (``PTX`` is False)."""

import triton
import triton.language as tl


@triton.jit
def _instruction(NAME: tl.constexpr, x):
    # One of float32, of a number and perhaps a constant.
    return tl.inline_asm_elementwise(NAME, "=f,f", [x], tl.float32, is_pure=True, pack=1)


@triton.jit
def fast_exp2(x, PTX: tl.constexpr):
    # 2^x to within three units in the last place; what would be subnormal is 0.
    return _instruction("ex2.approx.ftz.f32 $0, $1;", x) if PTX else tl.exp2(x)


@triton.jit
def fast_inverse(x, PTX: tl.constexpr):
    return _instruction("rcp.approx.ftz.f32 $0, $1;", x) if PTX else 1.0 / x


@triton.jit
def fast_sine_cosine(angle, PTX: tl.constexpr):
    # Of an angle in radians.
    if PTX:
        sine = _instruction("sin.approx.ftz.f32 $0, $1;", angle)
        cosine = _instruction("cos.approx.ftz.f32 $0, $1;", angle)
    else:
        sine, cosine = tl.sin(angle), tl.cos(angle)
    return sine, cosine


@triton.jit
def one_if_positive(x, PTX: tl.constexpr):
    # 1 where x > 0, else 0, by a multiplication.
    if PTX:
        one = _instruction("mul.sat.ftz.f32 $0, $1, 0f7F000000;", x)
    else:
        one = tl.where(x > 0, 1.0, 0.0)
    return one


@triton.jit
def one_if_at_most(x, CAP: tl.constexpr, PTX: tl.constexpr):
    # 1 where x is at most CAP, or an ulp above it, else 0 (of NaN too), likewise: 2^60 times how
    # far CAP and an ulp are above it.
    if PTX:
        SCALED: tl.constexpr = CAP * 1.00000011920928955 * 1152921504606846976.0
        one = tl.inline_asm_elementwise(
            "fma.rn.sat.ftz.f32 $0, $1, 0fDD800000, $2;", "=f,f,f",
            [x, tl.full((), SCALED, tl.float32)], tl.float32, is_pure=True, pack=1,
        )  # fmt: skip
    else:
        one = tl.where(x <= CAP, 1.0, 0.0)
    return one


@triton.jit
def widened(x, TYPE: tl.constexpr, PTX: tl.constexpr):
    # x in float32 or float64.  Two of bfloat16 are one register, and an instruction each.
    if PTX and x.dtype == tl.bfloat16 and TYPE == tl.float32:
        wide = tl.inline_asm_elementwise(
            "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;", "=r,=r,r", [x],
            tl.float32, is_pure=True, pack=2,
        )  # fmt: skip
    else:
        wide = x.to(TYPE)
    return wide


@triton.constexpr_function
def _clamp(BITS, IS_BFLOAT):
    # The instructions that cut two numbers of 16 bits in one register.
    name = "bf16x2" if IS_BFLOAT else "f16x2"
    return (
        "{ .reg .b32 high, low, cut; "
        f"mov.b32 high, {BITS * 65537}; mov.b32 low, {(BITS + 32768) * 65537}; "
        f"min.NaN.{name} cut, $1, high; max.NaN.{name} $0, cut, low; }}"
    )


@triton.jit
def clamped(x, BITS: tl.constexpr):
    # x, of 16 bits, cut at plus and minus the number of these bits; NaN stays NaN.
    IS_BFLOAT: tl.constexpr = x.dtype == tl.bfloat16
    return tl.inline_asm_elementwise(
        _clamp(BITS, IS_BFLOAT), "=r,r", [x], x.dtype, is_pure=True, pack=2
    )

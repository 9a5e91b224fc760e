# mypy: ignore-errors
"""How a tensor is cut into tiles, and how the Triton kernels go from one to the next.

A program walks over a share of the positions, tile by tile.  A tile is of one of two shapes.
Where positions lie along memory, a program keeps to one channel, whose kind is then known, and a
tile is so many groups of neighbours.  Where channels do (``LANES``), a tile is so many positions of
so many channels, each of its own kind.
"""

from collections import namedtuple

import triton
import triton.language as tl

from ._triton_elements import DOUBLE, HALF, at_least, at_most

# A walk: from which position to which, how many channels there are, and which are walked along.
Walk = namedtuple(
    "Walk", ["first", "last", "inner", "channel", "channels", "mask", "share", "shares"]
)
# A tensor: where it begins, and its strides.
Strided = namedtuple("Strided", ["pointer", "outer", "channel", "inner"])


@triton.jit
def walk_of(channels, positions, share, inner, HOW: tl.constexpr):
    program = tl.program_id(0)
    if HOW.LANES:
        blocks = tl.cdiv(channels, HOW.WIDTH)
        channel = program % blocks * HOW.WIDTH + tl.arange(0, HOW.WIDTH)
        split = program // blocks
    else:
        blocks = channels
        channel = program % blocks
        split = program // blocks
    mask = channel < channels
    if HOW.WIDE:
        first = split.to(tl.int64) * share
        channel = channel.to(tl.int64)
    else:
        first = split * share
    last = tl.minimum(first + share, positions)
    shares = tl.num_programs(0) // blocks
    return Walk(first, last, inner, channel, channels, mask, split, shares)


@triton.jit
def ask_for(x, walk, HOW: tl.constexpr):
    # Asks for what a walk along many channels reads first, which comes while normal forms are made:
    # 128 positions, in lines of 128 bytes.
    LINE: tl.constexpr = 1024 // x.pointer.dtype.element_ty.primitive_bitwidth
    ACROSS: tl.constexpr = (HOW.WIDTH + LINE - 1) // LINE
    position = tl.minimum(walk.first + tl.arange(0, 128), walk.last - 1)
    outer = position * 0
    if not HOW.FLAT:
        outer = position // walk.inner
    at = outer * x.outer + (position - outer * walk.inner) * x.inner
    first = tl.program_id(0) % tl.cdiv(walk.channels, HOW.WIDTH) * HOW.WIDTH
    for i in tl.static_range(ACROSS):
        channel = tl.minimum(first + i * LINE, walk.channels - 1)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; // $0", "=r,l", [x.pointer + at + channel * x.channel],
            tl.int32, is_pure=False, pack=1,
        )  # fmt: skip


@triton.jit
def load_tile(at, inside, HOW: tl.constexpr):
    if HOW.EVEN:
        found = tl.load(at)
    else:
        found = tl.load(at, inside, 0.0)
    return found


@triton.jit
def store_tile(at, found, inside, HOW: tl.constexpr):
    STREAM: tl.constexpr = ".cs" if HOW.STREAM else ""
    if HOW.EVEN:
        tl.store(at, found, cache_modifier=STREAM)
    else:
        tl.store(at, found, inside, cache_modifier=STREAM)


@triton.jit
def start_of(walk, HOW: tl.constexpr):
    # The first tile's positions, and each as an index along the outer and the inner dimension.
    if HOW.LANES:
        position = walk.first + tl.arange(0, HOW.HEIGHT)
    else:
        position = walk.first + tl.arange(0, HOW.HEIGHT) * HOW.WIDTH
    outer = position * 0
    if not HOW.FLAT:
        outer = position // walk.inner
    return position, outer, position - outer * walk.inner


@triton.jit
def next_tile(position, outer, inner, walk, HOW: tl.constexpr):
    # The same of the tile after it; no division is worth being done for each.
    STRIDE: tl.constexpr = HOW.HEIGHT if HOW.LANES else HOW.HEIGHT * HOW.WIDTH
    if not HOW.FLAT:
        whole = STRIDE // walk.inner
        inner += STRIDE - whole * walk.inner
        over = inner >= walk.inner
        inner = tl.where(over, inner - walk.inner, inner)
        outer += whole + over.to(tl.int32)
    return position + STRIDE, outer, inner


@triton.jit
def inside_of(position, walk, HOW: tl.constexpr):
    # Which elements of a tile are within the walk.
    inside = (position < walk.last)[:, None]
    if HOW.LANES:
        inside = inside & walk.mask[None, :]
    return inside


@triton.jit
def tile_of(x, position, outer, inner, walk, HOW: tl.constexpr):
    # Pointers to a tile's elements.
    if HOW.FLAT:
        offset = position * x.inner
    else:
        offset = outer * x.outer + inner * x.inner
    if HOW.LANES:
        offset = offset[:, None] + (walk.channel * x.channel)[None, :]
        TOGETHER: tl.constexpr = HOW.TOGETHER
        if TOGETHER < HOW.WIDTH:
            offset = tl.max_contiguous(offset, (1, TOGETHER))
    else:
        WIDTH: tl.constexpr = HOW.WIDTH  # Triton 3.6 takes no attribute here
        offset = tl.multiple_of(offset, WIDTH)
        offset = (walk.channel * x.channel) + offset[:, None] + tl.arange(0, HOW.WIDTH)[None, :]
    return x.pointer + offset


@triton.jit
def one_channel(walk, i, HOW: tl.constexpr):
    # The walk along the i-th channel of a tile.
    channel = tl.sum(tl.where(tl.arange(0, HOW.WIDTH) == i, walk.channel, 0), 0)
    return Walk(
        walk.first,
        walk.last,
        walk.inner,
        channel,
        walk.channels,
        channel < walk.channels,
        walk.share,
        walk.shares,
    )


@triton.jit
def holds(condition, i, HOW: tl.constexpr):
    # Whether it holds for the i-th channel of a tile.
    return tl.sum(tl.where(tl.arange(0, HOW.WIDTH) == i, condition.to(tl.int32), 0), 0) > 0


@triton.jit
def narrow(x, pointer, MODE: tl.constexpr):
    # x in the type that the pointer points to; overflow becomes its largest number.
    TYPE: tl.constexpr = pointer.dtype.element_ty
    if MODE == DOUBLE and TYPE != tl.float64:
        largest = tl.full(
            (), 3.3895313892515355e38 if TYPE == tl.bfloat16 else 3.4028234663852886e38, tl.float64
        )
        x = at_least(at_most(x, largest, MODE), -largest, MODE).to(tl.float32)
    if TYPE == tl.float16:
        x = at_least(at_most(x, 65504.0, HALF), -65504.0, HALF)
    return x.to(TYPE)


@triton.constexpr_function
def _splits_width(WIDTH, ELEMENTS, LANES):
    # A tile is halved so that each thread, which has so many elements, has half of them of either:
    # of neighbours, or of its rows.
    return not LANES and WIDTH >= ELEMENTS


@triton.constexpr_function
def shape_of(PARTS, HOW):
    # The shape of so many parts of a tile.
    height, width, elements = HOW.HEIGHT, HOW.WIDTH, HOW.ELEMENTS
    while PARTS > 1:
        if _splits_width(width, elements, HOW.LANES):
            width //= 2
        else:
            height //= 2
        elements //= 2
        PARTS //= 2
    return height, width


@triton.jit
def _halves(x, ELEMENTS: tl.constexpr, HOW: tl.constexpr):
    HEIGHT: tl.constexpr = x.shape[0]
    WIDTH: tl.constexpr = x.shape[1]
    if _splits_width(WIDTH, ELEMENTS, HOW.LANES):
        pairs = tl.reshape(x, (HEIGHT, WIDTH // 2, 2))
    else:
        pairs = tl.permute(tl.reshape(x, (2, HEIGHT // 2, WIDTH)), (1, 2, 0))
    return tl.split(pairs)


@triton.jit
def _joined(x, y, SHAPE: tl.constexpr, ELEMENTS: tl.constexpr, HOW: tl.constexpr):
    # What these are the halves of, of this shape.
    pairs = tl.join(x, y)
    if not _splits_width(SHAPE[1], ELEMENTS, HOW.LANES):
        pairs = tl.permute(pairs, (2, 0, 1))
    return tl.reshape(pairs, SHAPE)


@triton.jit
def parts_of(x, PARTS: tl.constexpr, HOW: tl.constexpr):
    # A tile in so many parts: 1, 2 or 4.
    ELEMENTS: tl.constexpr = HOW.ELEMENTS
    if PARTS == 1:
        parts = (x,)
    elif PARTS == 2:
        parts = _halves(x, ELEMENTS, HOW)
    else:
        first, second = _halves(x, ELEMENTS, HOW)
        parts = _halves(first, ELEMENTS // 2, HOW) + _halves(second, ELEMENTS // 2, HOW)
    return parts


@triton.jit
def whole_of(parts, HOW: tl.constexpr):
    # The tile that these are the parts of.
    ELEMENTS: tl.constexpr = HOW.ELEMENTS
    SHAPE: tl.constexpr = shape_of(1, HOW)
    HALF_SHAPE: tl.constexpr = shape_of(2, HOW)
    whole = parts[0]
    if len(parts) == 2:
        whole = _joined(parts[0], parts[1], SHAPE, ELEMENTS, HOW)
    elif len(parts) == 4:
        first = _joined(parts[0], parts[1], HALF_SHAPE, ELEMENTS // 2, HOW)
        second = _joined(parts[2], parts[3], HALF_SHAPE, ELEMENTS // 2, HOW)
        whole = _joined(first, second, SHAPE, ELEMENTS, HOW)
    return whole

"""Triton's interpreter, exact and in less than half of its time, for the tests that run kernels.

As it is, it rounds twice in a multiplication with an addition, patches its language anew in each
call of a function, looks types up in a table that it makes each time, and reduces a tensor number
by number.  Here it rounds once (but in float64), patches once, keeps the table, and reduces by
halves, as a GPU does; that wants functions that do not mind the order of their arguments.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any


@functools.cache
def prepare() -> None:
    """For the rest of the process, in which Triton then compiles nothing."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    scope = interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    interpreter._patch_lang = lambda fn: type(scope)()

    find, known = interpreter._get_np_dtype, {}

    def dtype_of(kind: Any) -> Any:
        name = kind.scalar.name
        if name not in known:
            known[name] = find(kind)
        return known[name]

    interpreter._get_np_dtype = dtype_of

    def reduced(self: Any, tensors: tuple[Any, ...]) -> list[Any]:
        kinds, parts = [x.dtype for x in tensors], [x.handle.data for x in tensors]
        while parts[0].shape[self.axis] > 1:  # a power of two
            halves = zip(*(np.split(part, 2, self.axis) for part in parts), strict=True)
            pairs = [map(self.to_tensor, half, kinds) for half in halves]
            found = self.combine_fn.fn(*pairs[0], *pairs[1])
            parts = [x.handle.data for x in (found if isinstance(found, tuple) else (found,))]
        if not self.keep_dims:
            parts = [part.squeeze(self.axis) for part in parts]
        return list(map(self.to_tensor, parts, kinds))

    interpreter.ReduceOps.generic_reduce = reduced

    def fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        wide = x.data.astype(np.float64) * y.data.astype(np.float64) + z.data.astype(np.float64)
        return interpreter.TensorHandle(wide.astype(x.data.dtype), x.dtype.scalar)

    interpreter.InterpreterBuilder.create_fma = fma

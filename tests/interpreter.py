"""Triton's interpreter, exact and in less than half of its time, for the tests that run kernels.

As it is, it rounds twice in a multiplication with an addition, patches its language anew in each
call of a function, looks types up in a table that it makes each time, describes the shape of each
result anew, and reduces a tensor number by number.  Here it rounds once (but in float64), patches
once, keeps tables and shapes, and reduces by halves, as a GPU does; that wants functions that do
not mind the order of their arguments.
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

    _keep_shapes(tl.core.block_type, tl.core.tensor)
    _skip_what_changes_nothing(interpreter.TritonSemantic, (tl.float32, tl.float64))

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


def _keep_shapes(block_type: Any, tensor: Any) -> None:
    """Describe a shape once, and tensors that have it."""
    make_type, make_tensor = block_type.__init__, tensor.__init__
    shapes: dict[Any, Any] = {}
    types: dict[Any, dict[str, Any]] = {}
    tensors: dict[str, dict[str, Any]] = {}

    def made_type(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = tuple(getattr(size, "value", size) for size in shape)
        key = element_ty.name, sizes
        if key not in types:
            make_type(self, element_ty, shape)
            self.shape = shapes.setdefault(sizes, self.shape)
            types[key] = dict(self.__dict__)
        self.__dict__.update(types[key], element_ty=element_ty)

    def made_tensor(self: Any, handle: Any, type: Any) -> None:
        if type.name not in tensors:
            make_tensor(self, handle, type)
            tensors[type.name] = dict(self.__dict__)
        self.__dict__.update(tensors[type.name], handle=handle, type=type, dtype=type.scalar)

    block_type.__init__, tensor.__init__ = made_type, made_tensor


def _skip_what_changes_nothing(semantic: Any, numbers: tuple[Any, ...]) -> None:
    """Operands that are alike are not looked at for a common type and shape."""
    common, broadcast = semantic.binary_op_type_checking_impl, semantic.broadcast_impl_value

    def common_unless_alike(self: Any, x: Any, y: Any, *rest: Any, **options: Any) -> Any:
        types = getattr(x, "type", None), getattr(y, "type", 0)
        if getattr(x, "dtype", None) in numbers and types[0] == types[1]:
            return x, y
        return common(self, x, y, *rest, **options)

    def broadcast_unless_alike(self: Any, x: Any, y: Any) -> Any:
        alike = x.type.is_block() and y.type.is_block() and x.type.shape is y.type.shape
        return (x, y) if alike else broadcast(self, x, y)

    semantic.binary_op_type_checking_impl = common_unless_alike
    semantic.broadcast_impl_value = broadcast_unless_alike

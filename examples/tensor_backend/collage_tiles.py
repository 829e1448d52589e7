"""A backend without a library: products by a schedule, an intrinsic and a pass of its own."""

from dataclasses import dataclass

from tvm import s_tir, tirx
from tvm.relax.dpl import is_const, is_op, wildcard
from tvm.script import tirx as T

from collage.backends.contract import Availability, PatternTriple, TensorBackend, Verdict
from collage.backends.relax.static_shape import tensor_dtype, tensor_shape


@T.prim_func(s_tir=True)
def described(
    A: T.Buffer((1,), "float32", offset_factor=1),
    B: T.Buffer((16,), "float32", offset_factor=1),
    C: T.Buffer((16,), "float32", offset_factor=1),
) -> None:
    with T.sblock("root"):
        T.reads(C[0:16], A[0:1], B[0:16])
        T.writes(C[0:16])
        for i in T.serial(0, 16):
            with T.sblock("update"):
                v = T.axis.remap("S", [i])
                C[v] = C[v] + A[0] * B[v]


@T.prim_func(s_tir=True)
def computed(
    A: T.Buffer((1,), "float32", offset_factor=1),
    B: T.Buffer((16,), "float32", offset_factor=1),
    C: T.Buffer((16,), "float32", offset_factor=1),
) -> None:
    with T.sblock("root"):
        T.reads(C[0:16], A[0:1], B[0:16])
        T.writes(C[0:16])
        C[T.ramp(T.int32(0), 1, 16)] = T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("llvm.fma"),
            T.broadcast(A[0], 16),
            B.vload([0], dtype="float32x16"),
            C.vload([0], dtype="float32x16"),
            dtype="float32x16",
        )


s_tir.TensorIntrin.register("tiles.fma_16", described, computed, override=True)


@tirx.transform.prim_func_pass(opt_level=0)
def no_alias(program, module, context):  # A pass of its own: LLVM may keep more in registers.
    return program.with_attr("tirx.noalias", True)


@dataclass(frozen=True)
class TilesOptions:
    rows: int = 4  # of the result that one task computes, set as {"kind": "tiles", "rows": 8}


class TilesBackend(TensorBackend):
    name, options_type = "tiles", TilesOptions

    def probe(self):
        return Availability(True, versions={"tiles": "1.0"})

    def patterns(self, target):
        def fits(match):
            shape, dtype = tensor_shape(match.root) or (), tensor_dtype(match.root)
            tiles = len(shape) == 2 and shape[0] % target.options.rows == shape[1] % 16 == 0
            if tiles and dtype == "float32":
                return Verdict.yes()
            return Verdict.no(f"{shape} of {dtype} does not divide into tiles of float32")

        def product():
            return is_op("relax.matmul")(wildcard(), is_const())

        relu = is_op("relax.nn.relu")(product())
        return [
            PatternTriple("tiles.matmul", product(), fits),
            PatternTriple("tiles.matmul_relu", relu, fits),
        ]

    def schedule(self, program, target, context):
        sch = s_tir.Schedule(program)
        product, *after = sch.get_child_blocks(sch.get_sblock("root"))
        i, j, k = sch.get_loops(product)
        outer, rows = sch.split(i, [None, target.options.rows])
        columns, lanes = sch.split(j, [None, 16])
        sch.reorder(outer, columns, k, rows, lanes)
        sch.parallel(outer)
        for block in after:
            sch.reverse_compute_at(block, columns)
            sch.vectorize(sch.get_loops(block)[-1])
        init = sch.decompose_reduction(product, k)
        sch.vectorize(sch.get_loops(init)[-1])
        sch.tensorize(lanes, "tiles.fma_16")
        return sch.mod["main"]

    def program_passes(self, target):
        return [no_alias]

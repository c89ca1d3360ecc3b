"""Fused plans in every layout they come in, and what is read from them."""

from debugtaps.engines.trt.plan import (
    Kernel,
    core,
    from_inspector,
    from_log,
    fusions,
    lowered,
    precisions,
    tactics,
)
from support.trt_logs import NAMES_ONLY_INSPECTOR, NEW_PLAN, OLD_INSPECTOR, OLD_PLAN

NAMES = {"onnx-node:0": "we]ird"}
CHAT = ["Building engine", "Layers are many", NEW_PLAN]


def test_the_newer_layout_keeps_constants_apart_and_leaves_factors_out() -> None:
    move, conv, last = from_log(CHAT, NAMES)
    assert conv == Kernel(
        "conv0_myl0_1", "correlation", frozenset({"conv0", "relu0"}), "__myelin_CASK_STUB",
        ("f32",), ("f16",), ("f32",),
    )  # fmt: skip
    assert move.nodes == frozenset()
    assert (last.name, last.tactic, last.writes) == ("last, odd_myl0_2", "", ("f16",))


def test_odd_names_are_put_back_and_scopes_left_out() -> None:
    assert from_log(CHAT, NAMES)[2].nodes == {"we]ird", "in"}


def test_the_older_layout_is_read_alike() -> None:
    move, conv = from_log([OLD_PLAN], {})
    assert move.tactic == "__myl_Move_0x3ea98178ef1cd51b696fba1502422510"
    assert conv == Kernel(
        "conv0_myl0_1", "correlation", frozenset({"conv0", "relu0"}), "__myelin_CASK_STUB",
        ("f16",), (), ("f32",),
    )  # fmt: skip


def test_the_inspector_says_the_same() -> None:
    (conv,) = from_inspector(OLD_INSPECTOR, {})
    assert conv.kind == "CaskConvolution"
    assert conv.nodes == {"conv0", "relu0"}
    assert (conv.reads, conv.writes, conv.tactic) == (("f16",), ("f32",), "sm80_xmma_fprop")
    assert from_inspector(NAMES_ONLY_INSPECTOR, {}) == []


def test_reformats_are_no_kernels_that_compute() -> None:
    plan = from_log(CHAT, NAMES)
    assert fusions(plan) == [["conv0", "relu0"], ["in", "we]ird"]]
    assert core(plan) == [("correlation", ("conv0", "relu0")), ("kgen", ("in", "we]ird"))]
    assert tactics(plan) == {"conv0+relu0": "__myelin_CASK_STUB"}


def kernel(kind: str, reads: tuple[str, ...], constants: tuple[str, ...] = ()) -> Kernel:
    return Kernel("k", kind, frozenset({"n"}), "", reads, constants, ("f32",))


def test_a_node_computes_in_the_coarsest_of_what_it_reads() -> None:
    assert precisions([kernel("gemm", ("f32",), ("f16",))]) == {"n": "f16"}
    assert precisions([kernel("kgen", ("f16",)), kernel("kgen", ("bf16",))]) == {"n": "bf16"}
    assert precisions([kernel("kgen", ("Int64",))]) == {"n": "f32"}


def test_float32_contractions_are_tf32_where_that_is_allowed() -> None:
    plan = [kernel("gemm", ("f32",))]
    assert precisions(plan, tf32=True) == {"n": "tf32"}
    assert precisions(plan, tf32=False) == {"n": "f32"}
    assert precisions([kernel("kgen", ("f32",))], tf32=True) == {"n": "f32"}


def test_a_collapsed_island_is_seen_and_a_kept_one_is_not() -> None:
    asked = {"n": "f32", "other": "f16"}
    assert lowered([kernel("gemm", ("f16",), ("f16",))], asked) == {"n": "f16"}
    assert lowered([kernel("gemm", ("f16",), ("f32",))], asked) == {}
    assert lowered([kernel("gemm", ("f32",))], asked) == {}
    assert lowered([kernel("gemm", ("Int8",))], asked) == {}

"""Seeds for the text fuzzer: JAX programs small enough to mutate well, as printed and in the generic form, and forms JAX does not use."""
import glob
import os
import sys

import corpus

HARD = [
    'func.func @f(%a: tensor<?x4xf32, #stablehlo.bounds<3, ?>>, %t: !stablehlo.token, %u: tuple<tensor<i1>, tuple<>>) -> tensor<?x4xf32, #stablehlo.bounds<3, ?>> {\n'
    '  return %a : tensor<?x4xf32, #stablehlo.bounds<3, ?>>\n}\n',
    '!t = tensor<2x!quant.uniform<i8<-127:127>:f32:0, {0.5:1,2.5e-1}>>\nfunc.func @q(%a: !t) -> !t {\n  %0 = stablehlo.add %a, %a : !t\n  return %0 : !t\n}\n',
    'module { func.func @r() { %0 = stablehlo.constant dense_resource<k> : tensor<2xi8>\n return } }\n{-# dialect_resources: { builtin: { k: "0x040000000102" } } #-}\n',
    'module { sdy.mesh @"m-1" = <["x"=2, "y"=2], device_ids=[3, 1, 2, 0]>\n func.func @s(%a: tensor<4xf32>) -> tensor<4xf32> {\n'
    '  %0 = sdy.sharding_constraint %a <@"m-1", [{"x":(1)2, ?}p1], replicated={"y"}> : tensor<4xf32>\n  sdy.sharding_group %0 group_id=3 : tensor<4xf32>\n'
    '  %1 = sdy.propagation_barrier %0 allowed_direction=BACKWARD : tensor<4xf32>\n  %2 = "x.y"(%1) ({ ^bb0(%z: tensor<i4>): "x.end"() : () -> () }) {a, b = [1.0 : bf16, @s::@t, {c = loc("q")}]} : (tensor<4xf32>) -> tensor<4xf32>\n'
    '  return %2 : tensor<4xf32> } }\n',
    '#loc = loc("f.py":1:2 to :5)\nmodule { func.func @w(%a: tensor<f32> loc(#l2)) -> tensor<f32> {\n'
    '  %0:2 = stablehlo.while(%i = %a, %j = %a) : tensor<f32>, tensor<f32> cond { %c = stablehlo.compare LT, %i, %j : (tensor<f32>, tensor<f32>) -> tensor<i1> stablehlo.return %c : tensor<i1> }'
    ' do { stablehlo.return %j, %i : tensor<f32>, tensor<f32> } loc(callsite(#loc at fused<"m">[#loc, unknown]))\n'
    '  %1:2 = stablehlo.reduce(%a init: %a), (%a init: %a) across dimensions = [] : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)'
    ' reducer(%x: tensor<f32>, %y: tensor<f32>) (%z: tensor<f32>, %w: tensor<f32>) { stablehlo.return %x, %z : tensor<f32>, tensor<f32> }\n'
    '  return %0#1 : tensor<f32> } }\n#l2 = loc("a"(#loc))\n',
]


def main(out):
    folder = corpus.make()
    for f in glob.glob(os.path.join(folder, "*.mlir")):
        if os.path.getsize(f) < 6000:
            with open(f) as src, open(os.path.join(out, os.path.basename(f)), "w") as dst:
                dst.write(src.read())
    for i, text in enumerate(HARD):
        with open(os.path.join(out, f"hard{i}.mlir"), "w") as dst:
            dst.write(text)


if __name__ == "__main__":
    main(sys.argv[1])
